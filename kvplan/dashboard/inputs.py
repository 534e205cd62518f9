"""The inputs as data: for each field of the plan, what its widget offers and what its help text says."""

from __future__ import annotations

from kvplan.plan import MAX_BYTES, MAX_GIB

AUTOMATIC = (
    "layers", "kv_heads", "head_dim", "weights_gib", "gpu_memory_gib", "gpu_memory_utilization", "activation_gib",
    "non_torch_gib", "cuda_graph_gib", "workspace_gib", "kv_dtype", "block_size", "max_num_seqs",
    "max_num_batched_tokens", "batch", "arrival_rate", "arrival_cv", "bandwidth_efficiency", "compute_efficiency",
    "step_overhead_s", "ttft_s", "tpot_s", "peak_to_mean", "gpu_hour_usd",
)  # fmt: skip
"""Fields whose widget shows what comes with the model, the GPU or the engine while the plan leaves them open."""

WORD_NONE = ("weight_dtype", "v_dtype", "mamba_ssm_cache_dtype", "spec_method", "engine_version")
"""Fields whose widget offers the word `auto` for None."""
TEXTS = ("groups", "spec", "table", "price_date")
"""Fields of text, whose widget is empty for None."""

STEPS = {
    "weights_gib": 0.01,
    "gpu_memory_gib": 0.1,
    "gpu_memory_utilization": 0.01,
    "activation_gib": 0.01,
    "non_torch_gib": 0.01,
    "cuda_graph_gib": 0.01,
    "workspace_gib": 0.01,
    "mem_fraction_static": 0.01,
    "allocator_overhead_fraction": 0.01,
    "tenant_quota_fraction": 0.05,
    "prompt_mean": 1.0,
    "output_mean": 1.0,
    "arrival_rate": 0.01,
    "arrival_cv": 0.01,
    "step_s": 0.001,
    "prefix_hit_rate": 0.05,
    "acceptance_rate": 0.05,
    "bandwidth_efficiency": 0.01,
    "compute_efficiency": 0.01,
    "step_overhead_s": 0.0001,
    "ttft_s": 0.1,
    "tpot_s": 0.001,
    "peak_to_mean": 0.01,
    "gpu_hour_usd": 0.01,
}
"""Steps of the widgets of real numbers; a value within half a step of the automatic one is the automatic one."""

BOUNDS = {
    "layers": (1, 128),
    "weights_gib": (0.0, MAX_GIB),
    "gpu_memory_gib": (1.0, 288.0),
    "gpu_memory_utilization": (0.0, 1.0),
    "activation_gib": (0.0, MAX_GIB),
    "non_torch_gib": (0.0, MAX_GIB),
    "cuda_graph_gib": (0.0, MAX_GIB),
    "workspace_gib": (0.0, MAX_GIB),
    "mem_fraction_static": (0.0, 1.0),
    "allocator_overhead_fraction": (0.0, 1.0),
    "kv_cache_memory_bytes": (0, MAX_BYTES),
    "tenant_quota_fraction": (0.0, 1.0),
    "max_tokens": (1, 2**24),
    "head_dim": (1, 65536),
    "pp": (1, 64),
    "dcp": (1, 64),
    "max_num_seqs": (1, 2**20),
    "max_num_batched_tokens": (1, 2**24),
    "spec_tokens": (0, 64),
    "shared_prefix_tokens": (0, 2**24),
    "prompt_mean": (1.0, float(2**24)),
    "output_mean": (1.0, float(2**24)),
    "batch": (1, 512),
    "arrival_rate": (0.0, float(2**24)),
    "arrival_cv": (0.0, float(2**24)),
    "step_s": (1e-6, 3600.0),
    "dp": (1, 2**20),
    "prefix_hit_rate": (0.0, 1.0),
    "acceptance_rate": (0.0, 1.0),
    "bandwidth_efficiency": (0.01, 1.0),
    "compute_efficiency": (0.01, 1.0),
    "step_overhead_s": (0.0, 3600.0),
    "ttft_s": (1e-6, 3600.0),
    "tpot_s": (1e-6, 3600.0),
    "peak_to_mean": (1.0, 1000.0),
    "spare_replicas": (0, 2**20),
    "gpu_hour_usd": (0.0, float(2**24)),
}
"""Least and most of sliders and number inputs; a slider widens to a plan outside it."""

CHOICES = {
    "kv_heads": (1, 2, 4, 8, 16, 32, 64, 96, 128),
    "tp": (1, 2, 4, 8),
    "context": tuple(2**power for power in range(8, 21)),
    "kv_dtype": ("bf16", "fp8", "int8", "int4"),
    "block_size": tuple(2**power for power in range(11)),
    "weight_dtype": ("auto", "bf16", "fp16", "fp32", "fp8", "int8", "int4", "nvfp4", "mxfp4"),
    "v_dtype": ("auto", "bf16", "fp16", "fp32", "fp8", "fp8_e5m2", "int8", "int4"),
    "mamba_ssm_cache_dtype": ("auto", "bf16", "fp16", "fp32"),
    "spec_method": ("auto", "ngram", "suffix", "mtp", "eagle3"),
    "engine_version": ("auto", "0.7", "0.11", "0.17", "0.19", "0.21"),
    "usage": ("server", "llm_class"),
    "admission": ("reserve", "on_demand"),
    "output_dist": ("exponential", "uniform", "fixed"),
}
"""What steps and selectors offer, beside the plan's own value."""

HELP = {
    "model": "The model preset: its layers, heads and weights. Choosing one takes back what was changed of the former "
    "one.",
    "layers": "Layers that keep a growing cache, of the whole model. Cache per token = 2 × layers × KV heads / tp × "
    "head dim × bytes an element; weights scale along.",
    "kv_heads": "Key and value heads of a layer (GQA has fewer than query heads, MQA one). Cache per token is "
    "proportional to them; each device has max(1, KV heads // tp).",
    "head_dim": "Width of one key or value head, in elements. Cache per token is proportional to it.",
    "weights_gib": "Weights of the whole model, GiB (2^30 bytes); each device loads weights / (tp × pp). Moving the "
    "layers scales them.",
    "weight_dtype": "Count the parameters at this width instead of taking the released size; it also sets the FLOP/s "
    "and the share of the bandwidth that steps reach.",
    "groups": "Layers in their order, in place of the preset's: kind[window]:layers x KV heads x head dim, repeats in "
    "brackets, e.g. (sliding1024:5x8x128,full:1x8x128)*10.",
    "spec": "A whole model in one word, as reading a config.json makes it; it beats the preset and groups.",
    "gpu": "The GPU preset. Choosing one takes back what was changed of the former one.",
    "gpu_memory_gib": "Total memory of one device as the driver reports it to a framework, in GiB (2^30 bytes). The "
    "marketed GB are another number.",
    "tp": "Tensor parallel (tensor_parallel_size): devices that share every layer. Each has weights / tp and max(1, "
    "KV heads // tp); beyond the number of KV heads these are copied and nothing more is saved.",
    "pp": "Pipeline parallel (pipeline_parallel_size): stages of consecutive layers, tp devices each. The fullest "
    "stage decides how many blocks there are.",
    "dcp": "Decode context parallel: ranks of a tensor-parallel group that share the tokens of full attention and "
    "MLA, each keeping ceil(tokens / dcp).",
    "enable_expert_parallel": "Experts spread over the ranks. It changes no cache; a model without experts is refused.",
    "gpu_memory_utilization": "Share of a device's memory the engine may use: pool = total × share − weights − what "
    "start-up takes. The engine's default unless set: 0.92 in vLLM 0.32.",
    "activation_gib": "Peak working memory of the largest step, GiB per device, as start-up profiles it. An estimate "
    "unless set.",
    "non_torch_gib": "Memory outside PyTorch, GiB per device: context, kernels, with tp buffers of collectives. An "
    "estimate unless set.",
    "cuda_graph_gib": "What the engine expects its CUDA graphs to take, GiB per device; off the pool since vLLM 0.21. "
    "An estimate unless set.",
    "workspace_gib": "Non-torch memory and CUDA graphs together, GiB per device; setting it beats the two parts.",
    "enforce_eager": "Without CUDA graphs, as --enforce-eager: nothing is set aside for them, and each step waits "
    "some 10 ms for the host.",
    "engine_version": "The vLLM whose start-up is estimated: utilization, activations, non-torch memory, graphs. "
    "Blocks and tokens are always those of 0.32.",
    "mem_fraction_static": "SGLang's budget in place of vLLM's: pool = (total − non-torch) × fraction − weights; "
    "activations and graphs live in the rest. Empty: vLLM's.",
    "allocator_overhead_fraction": "What the allocator loses, as a fraction of the pool: pool = what is left / (1 + "
    "fraction).",
    "kv_cache_memory_bytes": "The pool of one device in bytes (--kv-cache-memory-bytes), as given to the engine; "
    "nothing is derived then. Empty: derived.",
    "context": "Longest sequence, prompt and output together (vLLM's max_model_len). Reserving books all of it.",
    "kv_dtype": "Width of stored keys and values (--kv-cache-dtype): bf16 2 bytes an element, fp8 and int8 1, int4 "
    "0.5. It follows the checkpoint unless set.",
    "v_dtype": "Another width for the values alone; auto: that of the keys.",
    "block_size": "Tokens in one block of the cache. A request books ceil(tokens / block) blocks; it changes rounding "
    "only, not bytes per token.",
    "mamba_ssm_cache_dtype": "Width of recurrent states, where the checkpoint's is not wanted: bf16 and fp16 2 bytes "
    "an element, fp32 4.",
    "async_scheduling": "Two steps in flight instead of one: windows keep room for twice the tokens.",
    "enable_prefix_caching": "Prefixes found in the pool are not computed again; layers that keep a state book more "
    "blocks for it.",
    "disable_hybrid_kv_cache_manager": "Windows stored as full attention; refused for layers that keep a state.",
    "spec_method": "Speculative decoding: ngram and suffix end async scheduling; mtp and eagle3 add cached layers.",
    "usage": "Which defaults of max_num_seqs and max_num_batched_tokens the engine takes: those of its server or of "
    "its Python class (LLM).",
    "max_num_seqs": "Most sequences in one step (vLLM's max_num_seqs). It can bind before memory does: batch ceiling "
    "= min(by memory, max_num_seqs, quota).",
    "max_num_batched_tokens": "Most tokens in one step, prompts and decodes together; caps the default of "
    "max_num_seqs, and windows keep room for them.",
    "spec_tokens": "Tokens drafted in a step (num_speculative_tokens): so many positions more that a sequence books.",
    "shared_prefix_tokens": "Tokens at the start that all requests share; whole blocks of them are stored once.",
    "admission": "Reserve: a request books the whole context. On demand: it books what it holds and grows; more fit "
    "on average, and when the pool runs out somebody is preempted.",
    "max_tokens": "The longest answer a request may ask for. A reserving scheduler books min(context, prompt + "
    "max_tokens) for it, and longer outputs end there. Empty: the longest output of the workload.",
    "tenant_quota_fraction": "The share of the memory ceiling one tenant may take: floor(share × ceiling) sequences. "
    "Empty: no quota.",
    "workload": "Request lengths, from a trace or `auto`: the means and the family given below.",
    "prompt_mean": "Mean prompt in tokens, where the workload is `auto`.",
    "output_mean": "Mean output in tokens, where the workload is `auto`.",
    "output_dist": "Family of output lengths, where the workload is `auto`.",
    "table": "Request lengths in one word, in place of the workload's, as reading a trace makes it.",
    "batch": "Sequences in a batch on the Batching page, and most in the system on the Throughput page and in the "
    "closed form of a fleet; simulations ignore it. The batch ceiling, at most 512, unless set.",
    "arrival_rate": "Requests that arrive a second, over all replicas. Those of the workload's trace unless set.",
    "arrival_cv": "Variation of the gaps between requests: standard deviation over mean. 1 is Poisson, more is bursty.",
    "step_s": "Seconds of every step, in place of the estimate from bandwidth and FLOP/s. Empty: the estimate.",
    "dp": "Data parallel: replicas of the whole engine that you have. Each has its own cache; the Fleet page says how "
    "many are needed.",
    "prefix_hit_rate": "Share of a prompt that is found in the pool, so that only the rest is computed. Empty: what "
    "the shared prefix makes of it. It changes the prefill, not the blocks.",
    "acceptance_rate": "Chance that a drafted token is accepted when those before it were; (1 - a^(k+1)) / (1 - a) "
    "tokens come out of a step that drafts k. Empty: none is.",
    "bandwidth_efficiency": "Share of the peak bandwidth that reading weights and cache reaches. Measured values by "
    "weight dtype unless set.",
    "compute_efficiency": "Share of the peak FLOP/s that a prefill reaches (MFU). Measured values by class of device "
    "unless set.",
    "step_overhead_s": "Seconds of each step in which the device waits for the host: next to none with CUDA graphs, "
    "some 10 ms without.",
    "ttft_s": "Target for the time to the first token, in seconds. 2 s unless set.",
    "tpot_s": "Target for the time between tokens, in seconds. 0.050 s unless set, some 15 words a second.",
    "peak_to_mean": "Requests of the busiest minute over those of the mean one: peak rate = ratio × arrival rate. The "
    "trace's, else 1, unless set.",
    "spare_replicas": "Replicas beyond those the peak needs, so that one may fail.",
    "gpu_hour_usd": "Your price of one device for an hour, in US dollars. 1.00, a unit and no offer, unless set.",
    "price_date": "When that price was valid, as 2026-11 or 2026-11-30; it is only shown.",
}

VIEW_HELP = {
    "ready_plan": "A plan worth opening: it sets all fields at once.",
    "nothing_to_undo": "Nothing to undo: no change of the plan comes before.",
    "nothing_to_redo": "Nothing to redo: no change of the plan was undone.",
    "history": "The last 20 plans of this session; each can be opened again. They go with the session.",
    "plan_file": "The plan as a file of JSON: save this one, or open one that was saved or that kvplan check reads.",
    "save_plan": "Every field that is set, as JSON, with the version of kvplan.",
    "open_plan": "A file of JSON of up to 1 MB: a saved plan or comparison. It is read here and not kept.",
    "share_form": "The link opens the plan; Markdown is its answer with that link; JSON is the plan as a file.",
    "share_review": "The whole answer as a document: a page and the details behind it.",
    "finder_words": "All words must match. Sizes compare with <, <=, > and >= a number of billions: >100b.",
    "config_file": "A file of JSON of up to 1 MB: a model's config.json. It is read here and not kept.",
    "config_text": "The text of a config.json, in place of a file. An upload comes first where there are both.",
    "trace_file": "A file of up to 64 MB, packed with gzip or not, and 2,000,000 rows: CSV, JSON or JSON lines, one "
    "request a row, with prompt and output in tokens.",
    "trace_columns": "The name of the column, where the guess is wrong; empty: the guess. Tokens, or seconds for "
    "times.",
    "long_run": "How many requests to simulate beside the server, under both policies; any other input stops it.",
    "moment": "A step of the run on demand: the table shows what the requests running in it hold and book, in MiB.",
    "backlog_lengths": "The workload's lengths in tokens, or the same requests all of their mean length.",
    "waste_stage": "When booked − held slots of a sequence are counted, in tokens: after its prompt, at its end, or "
    "on average over its steps.",
    "waste_unit": "Waste as a share of the slots booked, wasted / (wasted + held), or in tokens a sequence.",
    "allocator": "How contiguous slots are found without paging: buddy halves extents of powers of two; first fit "
    "takes the first gap that is large enough.",
    "map_moment": "The step of the run at which the map shows the pool: 1/4, 1/2 or 3/4 of the way.",
    "extent_share": "Largest free extent over all slots of the pool, or over its free slots; below 100% of these, "
    "what is free lies in pieces.",
    "compare": "The same plan with one field changed: another cache dtype (dashed) or another tp (dotted).",
    "compare_keep": "Stand a copy of the sidebar's plan beside it; then change the sidebar.",
    "compare_link": "A link of kvplan with one plan or several; what it records of results is not used.",
    "compare_file": "A file of JSON of up to 1 MB: a saved comparison or plan. It is read here and not kept.",
    "compare_save": "These plans as a file of JSON, which this page and the sidebar open again.",
    "compare_open": "This plan goes into the sidebar, and the sidebar's in its place.",
    "compare_remove": "Take this plan away; those behind it move up.",
    "rates_per": "Output tokens a second of a replica, of one GPU (a replica's / (tp × pp)), or of one user (1 / "
    "TPOT).",
    "little_unknown": "Which of the three follows from the other two: L = λ × W.",
    "concurrency": "L: requests in the system, waiting or running.",
    "rate": "λ: requests that complete in a second.",
    "time_s": "W: seconds from a request's arrival to its last token.",
    "fleet_latency": "The latency across the chart, in seconds: TTFT, until the first token, or TPOT, between tokens.",
    "log_file": "A start-up log as text, up to 5 MiB. It comes before what is pasted, and is not kept.",
    "log_text": "Everything the engine printed from its start to the cache size or the error; other lines do no harm.",
}
"""What the controls say that set no field of a plan: views, readers and questions, by key."""


def decimals(name: str) -> int:
    """Decimals a widget shows, from its step."""
    return len(str(STEPS[name]).partition(".")[2].rstrip("0"))
