"""The arguments of a vLLM command line, as data: which field of a plan each is, and which take no GPU memory.

Names are vLLM's own, with underscores. Source: vLLM 0.32, engine/arg_utils.py and entrypoints/openai/cli_args.py.
"""

from __future__ import annotations


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


SHORT = {
    "ac": "attention_config", "cc": "compilation_config", "dc": "diffusion_config",
    "dcp": "decode_context_parallel_size", "dp": "data_parallel_size", "dpa": "data_parallel_address",
    "dpb": "data_parallel_backend", "dpe": "data_parallel_external_lb", "dph": "data_parallel_hybrid_lb",
    "dpl": "data_parallel_size_local", "dpm": "data_parallel_multi_port_external_lb", "dpn": "data_parallel_rank",
    "dpp": "data_parallel_rpc_port", "dpr": "data_parallel_start_rank", "ep": "enable_expert_parallel",
    "n": "nnodes", "O": "optimization_level", "pcp": "prefill_context_parallel_size", "pp": "pipeline_parallel_size",
    "q": "quantization", "r": "node_rank", "sc": "speculative_config", "tp": "tensor_parallel_size",
}  # fmt: skip
"""What a single dash writes."""

FIELDS = {
    "async_scheduling": "async_scheduling",
    "block_size": "block_size",
    "data_parallel_size": "dp",
    "decode_context_parallel_size": "dcp",
    "disable_hybrid_kv_cache_manager": "disable_hybrid_kv_cache_manager",
    "enable_expert_parallel": "enable_expert_parallel",
    "enable_prefix_caching": "enable_prefix_caching",
    "enforce_eager": "enforce_eager",
    "gpu_memory_utilization": "gpu_memory_utilization",
    "kv_cache_dtype": "kv_dtype",
    "kv_cache_memory_bytes": "kv_cache_memory_bytes",
    "mamba_ssm_cache_dtype": "mamba_ssm_cache_dtype",
    "max_model_len": "context",
    "max_num_batched_tokens": "max_num_batched_tokens",
    "max_num_seqs": "max_num_seqs",
    "pipeline_parallel_size": "pp",
    "tensor_parallel_size": "tp",
}
"""Arguments that are a field of a plan."""
OF_THE_MODEL = frozenset({"model", "quantization", "dtype"})
"""Arguments whose meaning hangs on the model."""
SPECULATIVE = {
    "speculative_config": "",
    "spec_method": "method",
    "spec_model": "model",
    "spec_tokens": "num_speculative_tokens",
}
"""Arguments of speculative decoding: the whole of its config, or one key of it."""
HUMAN_READABLE = frozenset({"kv_cache_memory_bytes", "max_model_len", "max_num_batched_tokens"})
"""Whole numbers that may end in k, m, g or t for powers of 1,000, or in K, M, G or T for powers of 1,024."""

NOT_MODELLED = {
    "attention_backend": "a backend may choose another block size; set block_size",
    "attention_config": "a backend may choose another block size; set block_size",
    "compilation_config": "the sizes of CUDA graphs are vLLM's defaults; set cuda_graph_gib",
    "config": "the file is not read; give its arguments here",
    "cpu_offload_gb": "weights that stay in host memory count as on the GPU; set weights_gib",
    "cudagraph_capture_sizes": "the sizes of CUDA graphs are vLLM's defaults; set cuda_graph_gib",
    "diffusion_config": "a step of diffusion is not counted",
    "disable_sliding_window": "windows stay as the model has them",
    "enable_dbo": "the second batch in flight takes activations of its own; set activation_gib",
    "enable_eplb": "redundant experts are not among the weights; set weights_gib",
    "enable_lora": "adapters take memory beside the weights; set weights_gib",
    "hf_overrides": "the config is taken as released; change a config.json and give it as --hf-config",
    "kv_cache_dtype_skip_layers": "every layer is taken to store the same width",
    "kv_transfer_config": "buffers of a connector are not counted; set non_torch_gib",
    "language_model_only": "the encoder counts among the weights; set weights_gib",
    "limit_mm_per_prompt": "the encoder's activations are estimated as vLLM measures them by default",
    "mamba_block_size": "states are aligned as vLLM does by default",
    "mamba_cache_dtype": "only mamba_ssm_cache_dtype is a field of a plan",
    "mamba_cache_mode": "states book the blocks of vLLM's default mode",
    "max_cudagraph_capture_size": "the sizes of CUDA graphs are vLLM's defaults; set cuda_graph_gib",
    "max_seq_len_to_capture": "the sizes of CUDA graphs are vLLM's defaults; set cuda_graph_gib",
    "mm_ipc_gpu_memory_gb": "memory of the encoder's inputs is not counted; set non_torch_gib",
    "no_enable_chunked_prefill": "prompts are taken to be prefilled in chunks",
    "num_gpu_blocks_override": "blocks follow from the memory; set kv_cache_memory_bytes",
    "num_speculative_tokens": "of older engines; give --speculative-config",
    "offload_backend": "weights that stay in host memory count as on the GPU; set weights_gib",
    "offload_group_size": "weights that stay in host memory count as on the GPU; set weights_gib",
    "offload_num_in_group": "weights that stay in host memory count as on the GPU; set weights_gib",
    "optimization_level": "the sizes of CUDA graphs are vLLM's defaults; set cuda_graph_gib",
    "prefill_context_parallel_size": "ranks of a prefill are not counted",
    "quantization_config": "the width of weights is that of --quantization; set weight_dtype",
    "skip_mm_profiling": "the encoder's activations are estimated as vLLM measures them by default",
    "speculative_model": "of older engines; give --speculative-config",
    "ubatch_size": "the batches in flight take activations of their own; set activation_gib",
    "use_replayssm": "states are those of the model alone",
}
"""Arguments that change what memory there is in a way that no field of a plan says -> what is counted instead."""

SWITCHES = _names("""
    aggregate_engine_logging allow_credentials allow_deprecated_quantization async_scheduling calculate_kv_scales
    cudagraph_metrics data_parallel_external_lb data_parallel_hybrid_lb data_parallel_multi_port_external_lb
    dcp_q_replicate disable_async_output_proc disable_cascade_attn disable_chunked_mm_input disable_custom_all_reduce
    disable_fastapi_docs disable_frontend_multiprocessing disable_hybrid_kv_cache_manager disable_log_requests
    disable_log_stats disable_mm_preprocessor_cache disable_nccl_for_dp_synchronization disable_sliding_window
    disable_uvicorn_access_log enable_auto_tool_choice enable_batch_sharded_sampling enable_chunked_prefill
    enable_cumem_allocator enable_dbo enable_elastic_ep enable_eplb enable_ep_weight_filter enable_expert_parallel
    enable_fault_tolerance enable_flashinfer_autotune enable_force_include_usage enable_layerwise_nvtx_tracing
    enable_log_deltas enable_log_outputs enable_log_requests enable_logging_iteration_details enable_lora
    enable_mfu_metrics enable_mixed_moe_lora_format enable_mm_embeds enable_moe_shared_loras
    enable_prefix_caching enable_prompt_embeds enable_prompt_tokens_details enable_reasoning enable_request_id_headers
    enable_return_routed_experts enable_server_load_tracking enable_sleep_mode enable_ssl_refresh
    enable_tokenizer_info_endpoint enable_tower_connector_lora enable_trace_replay enforce_eager
    exclude_tools_when_tool_choice_none fail_on_environ_validation fully_sharded_loras grpc headless
    interleave_mm_strings kv_cache_metrics kv_sharing_fast_prefill language_model_only
    log_error_stack mm_device_do_normalize mm_encoder_only numa_bind per_request_spec_decode_metrics
    ray_workers_use_nsight return_sampling_mask return_tokens_as_token_ids scheduler_reserve_full_isl
    skip_mm_profiling skip_tokenizer_init specialize_active_lora tokens_only trust_remote_code
    trust_request_chat_template use_fp64_gumbel use_replayssm use_tqdm_on_load use_v2_block_manager
""")
"""Arguments without a value, of any meaning; `no_` before one turns it off."""
LISTS = _names("""
    allowed_media_domains api_key cudagraph_capture_sizes cpu_offload_params ignore_patterns
    kv_cache_dtype_skip_layers logits_processors lora_modules lora_target_modules middleware numa_bind_cpus
    numa_bind_nodes offload_params prompt_adapters served_model_name
""")
"""Arguments that take every word up to the next one."""
_TAKE_NO_MEMORY = _names("""
    additional_config all2all_backend allowed_headers allowed_local_media_path allowed_methods allowed_origins
    api_server_count chat_template chat_template_content_format code_revision collect_detailed_traces config_format
    convert cp_kv_cache_interleave_size cpu_distributed_timeout_seconds data_parallel_address data_parallel_backend
    data_parallel_rank data_parallel_rpc_port data_parallel_size_local data_parallel_start_rank
    dbo_decode_token_threshold dbo_prefill_token_threshold dcp_comm_backend dcp_kv_cache_interleave_size
    default_chat_template_kwargs default_mm_loras device device_ids distributed_executor_backend
    distributed_timeout_seconds download_dir dp_sync_interval ec_manager_config ec_transfer_config eplb_config
    expert_placement_strategy fault_tolerance_config gdn_prefill_backend generation_config guided_decoding_backend
    h11_max_header_count h11_max_incomplete_event_size hf_config_path hf_token host io_processor_plugin ir_op_priority
    jit_monitor_mode kda_prefill_backend kernel_config kv_cache_metrics_sample kv_events_config kv_offloading_backend
    kv_offloading_size limit_concurrency linear_backend load_format log_config_file logprobs_mode
    long_prefill_token_threshold lora_dtype mamba_backend master_addr master_port max_cpu_loras max_log_len
    max_logprobs max_lora_rank max_loras max_num_queued_reqs max_num_queued_tokens max_num_scheduled_tokens
    max_parallel_loading_workers media_io_kwargs mm_encoder_attn_backend mm_encoder_tp_mode mm_hasher_algorithm
    mm_processor_cache_gb mm_processor_cache_type mm_processor_device mm_processor_kwargs mm_tensor_ipc
    model_class_overrides model_impl model_loader_extra_config moe_backend nnodes node_rank otlp_traces_endpoint
    override_generation_config performance_mode pooler_config port prefill_schedule_interval
    prefix_cache_retention_interval prefix_caching_hash_algo profiler_config pt_load_map_location reasoning_config
    reasoning_parser reasoning_parser_plugin renderer_num_workers response_role revision root_path runner
    safetensors_load_strategy safetensors_prefetch_block_size safetensors_prefetch_num_threads scheduler_cls
    scheduling_policy seed show_hidden_metrics_for_version shutdown_timeout ssl_ca_certs ssl_cert_reqs ssl_certfile
    ssl_ciphers ssl_keyfile stream_interval structured_outputs_config swap_space task tokenizer tokenizer_mode
    tokenizer_revision tool_call_parser tool_parser_plugin tool_server uds uvicorn_log_level video_pruning_method
    video_pruning_rate weight_transfer_config worker_cls worker_extension_cls
""")
IGNORED = (SWITCHES | LISTS | _TAKE_NO_MEMORY) - FIELDS.keys() - NOT_MODELLED.keys()
"""Arguments that take no GPU memory of their own."""
