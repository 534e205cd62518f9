"""What whole blocks waste against block size, and beside one reservation of the whole context."""

from kvplan import Plan, evaluate

for size in (1, 16, 64, 256):
    paging = evaluate(Plan(context=8192, block_size=size)).paging
    slots, share = paging.contiguous_waste_tokens, paging.contiguous_waste_share
print(f"contiguous: {slots:,.0f} slots wasted, {share:.1%} of those booked")
