# SPDX-License-Identifier: Apache-2.0
# Schedulers, the virtual clock's loop and its backends, and costs.
libattnreplay_a_SOURCES += \
  replay/cost/backend_cost.c replay/cost/backend_cost.h replay/cost/backend_roofline.c \
    replay/cost/backend_roofline.h replay/cost/cost_table.c replay/cost/cost_table.h \
    replay/cost/comm.c replay/cost/comm.h replay/cost/comm_experts.c \
    replay/cost/comm_experts.h replay/cost/comm_preset.c replay/cost/comm_preset.h \
    replay/cost/comm_ring.c replay/cost/comm_ring.h \
    replay/cost/comm_table.c replay/cost/comm_table.h \
    replay/cost/cost.h replay/cost/costs.c replay/cost/costs.h \
    replay/cost/decode_walk.c replay/cost/decode_walk.h \
    replay/cost/dense_as.c replay/cost/dense_as.h \
    replay/cost/engine_memory.c replay/cost/engine_memory.h \
    replay/cost/experts.c replay/cost/experts.h replay/cost/experts_file.c \
    replay/cost/experts_file.h \
    replay/cost/kdtree.c replay/cost/kdtree.h replay/cost/roofline.c replay/cost/roofline.h \
    replay/cost/roofline_count.h replay/cost/roofline_gpu.c replay/cost/roofline_gpu.h \
    replay/cost/roofline_latent.c replay/cost/roofline_latent.h \
    replay/cost/roofline_select.c replay/cost/roofline_select.h \
  replay/engine/act_capture.c replay/engine/act_capture.h replay/engine/act_rope.c \
    replay/engine/act_rope.h replay/engine/act_weights.c replay/engine/act_weights.h \
    replay/engine/activations.c replay/engine/activations.h \
    replay/engine/attn_engine.c replay/engine/attn_engine.h replay/engine/attn_kept.c \
    replay/engine/backend.c replay/engine/backend.h replay/engine/backend_cpu.c \
    replay/engine/backend_cpu.h replay/engine/backend_cpu_evict.c \
    replay/engine/backend_cpu_pass.c replay/engine/backend_cuda.h replay/engine/backends.c \
    replay/engine/backends_attn.h \
    replay/engine/decoder.h replay/engine/decoder_state.h replay/engine/drops.c \
    replay/engine/drops.h \
    replay/engine/evictions.c replay/engine/evictions.h replay/engine/fleet.c \
    replay/engine/graph_sizes.c replay/engine/graph_sizes.h replay/engine/graphs.h \
    replay/engine/groups.c replay/engine/groups.h replay/engine/heads.c \
    replay/engine/heads.h replay/engine/hot_list.c \
    replay/engine/hot_list.h replay/engine/hot_rows.c replay/engine/hot_rows.h \
    replay/engine/kernel_cost.c replay/engine/kernel_cost.h \
    replay/engine/latency.c \
    replay/engine/latency.h replay/engine/loop.h replay/engine/observer.h \
    replay/engine/overflow.c replay/engine/overflow.h \
    replay/engine/prepare.c replay/engine/prepare.h replay/engine/record.c replay/engine/record.h \
    replay/engine/replay.c replay/engine/replay.h replay/engine/router.c \
    replay/engine/router.h replay/engine/router_prefix.c replay/engine/rows.c replay/engine/rows.h \
    replay/engine/rows_part.h replay/engine/rows_revived.c \
    replay/engine/run_scope.h replay/engine/stages.c replay/engine/stages.h \
    replay/engine/tokens.c replay/engine/tokens.h \
  replay/forward/decoder_ref.c replay/forward/decoder_ref.h replay/forward/forward.c \
    replay/forward/forward.h replay/forward/forward_memory.c replay/forward/forward_state.h \
    replay/forward/product.c replay/forward/product.h replay/forward/rotate.c \
    replay/forward/rotate.h \
  replay/host/host.c replay/host/host.h replay/host/host_file.c replay/host/host_probe.c \
    replay/host/host_probe.h \
  replay/ranks/again.c replay/ranks/again.h \
    replay/ranks/hello.c replay/ranks/hello.h replay/ranks/launcher.c replay/ranks/launcher.h \
    replay/ranks/nccl.c replay/ranks/nccl.h replay/ranks/nccl_api.h replay/ranks/rank_id.c \
    replay/ranks/rank_id.h replay/ranks/barrier.c replay/ranks/barrier.h \
    replay/ranks/tell.c replay/ranks/tell.h replay/ranks/world.c \
    replay/ranks/world.h replay/ranks/world_device.h \
  replay/sched/arrivals.c replay/sched/arrivals.h replay/sched/batch.c replay/sched/batch.h \
    replay/sched/block_keys.c replay/sched/block_keys.h \
    replay/sched/block_pool.c replay/sched/block_pool.h replay/sched/blocks.c \
    replay/sched/blocks.h replay/sched/front.c replay/sched/front.h \
    replay/sched/kv_blocks.c replay/sched/kv_blocks.h \
    replay/sched/kv_groups.c replay/sched/kv_groups.h \
    replay/sched/model_groups.c replay/sched/model_groups.h replay/sched/policies.c \
    replay/sched/policy.h replay/sched/prefix_cache.c replay/sched/prefix_cache.h \
    replay/sched/radix_cache.c replay/sched/radix_cache.h \
    replay/sched/sched.c replay/sched/sched.h replay/sched/sched_open.c \
    replay/sched/sched_evict.c replay/sched/sched_part.h \
  replay/sched/policies/orca.c replay/sched/policies/sarathi.c replay/sched/policies/sglang.c \
    replay/sched/policies/trtllm.c replay/sched/policies/vllm.c
if HAVE_CUDA
libattnreplay_a_SOURCES += \
  replay/engine/act_capture_device.c replay/engine/act_rope_device.c \
    replay/engine/act_weights_device.c \
    replay/engine/backend_cuda.c replay/engine/backend_cuda_compare.c \
    replay/engine/backend_cuda_cost.c replay/engine/backend_cuda_evict.c \
    replay/engine/backend_cuda_drop.c replay/engine/backend_cuda_linear.c \
    replay/engine/backend_cuda_memory.c replay/engine/backend_cuda_share.c \
    replay/engine/backend_cuda_weights.c \
    replay/engine/decoder.c replay/engine/decoder_memory.c replay/engine/graphs.c \
  replay/ranks/world_device.c
DEVICE_CODE += replay/host/host_probe_device.cu
endif

nobase_dist_pkgdata_DATA += \
  replay/cost/collectives/h200-nccl.comm replay/cost/collectives/h200-vllm.comm \
  replay/cost/gpus/a100.json replay/cost/gpus/a100-40gb.json replay/cost/gpus/h100.json \
    replay/cost/gpus/h200.json replay/cost/gpus/l40s.json \
    replay/cost/gpus/rtx-4090.json replay/cost/gpus/rtx-pro-6000.json \
  replay/host/presets/vllm-0.24.json replay/host/presets/vllm-0.24-serve.json

check_PROGRAMS += \
  tests/forward-dump \
  tests/t-again \
  tests/t-arrivals \
  tests/t-backend-cpu \
  tests/t-backend-gpu \
  tests/t-backend-weights \
  tests/t-blocks \
  tests/t-costs \
  tests/t-decoder-gpu tests/t-decoder-ranks-gpu \
  tests/t-comm tests/t-common-step \
  tests/t-dense-as \
  tests/t-drops tests/t-drops-gpu tests/t-drops-weights \
  tests/t-engine tests/t-engine-memory \
  tests/t-evict-backend tests/t-evict-backend-gpu tests/t-evict-sched \
  tests/t-experts \
  tests/t-forward tests/t-front \
  tests/t-graphs-gpu \
  tests/t-groups \
  tests/t-hot-list \
  tests/t-host \
  tests/t-hybrids \
  tests/t-kernel-cost \
  tests/t-layers \
  tests/t-launcher \
  tests/t-model-groups \
  tests/t-pages \
  tests/t-policies \
  tests/t-prefix \
  tests/t-prepare \
  tests/t-radix \
  tests/t-replicas \
  tests/t-rank-heads tests/t-rank-sums tests/t-ranks tests/t-ranks-gpu \
  tests/t-roofline tests/t-roofline-formats tests/t-roofline-latent tests/t-roofline-layers \
  tests/t-served-gpu \
  tests/t-share \
  tests/t-stages \
  tests/t-tell \
  tests/t-tokens \
  tests/t-views \
  tests/t-vllm \
  tests/t-weights-gpu \
  tests/t-workloads \
  tests/t-world tests/t-world-gpu
# These take the place of the database, so their file is in no library.
POLICY_CASE = tests/policy-case.c tests/policy-case.h
LETTERS = tests/letters.c tests/letters.h
tests_t_groups_SOURCES    = tests/t-groups.c $(LETTERS)
tests_t_policies_SOURCES  = tests/t-policies.c $(POLICY_CASE)
tests_t_prefix_SOURCES    = tests/t-prefix.c $(LETTERS)
tests_t_radix_SOURCES     = tests/t-radix.c $(LETTERS)
tests_t_vllm_SOURCES      = tests/t-vllm.c $(POLICY_CASE)
tests_t_workloads_SOURCES = tests/t-workloads.c $(POLICY_CASE)
dist_check_SCRIPTS += \
  tests/t-cmd-costs.sh tests/t-cmd-roofline.sh tests/t-drop-run.sh tests/t-engines.sh \
    tests/t-evict-run.sh \
    tests/t-faults.sh tests/t-faults-db.sh tests/t-formats.sh tests/t-hybrid.sh tests/t-memory.sh \
    tests/t-intervals.sh tests/t-keep-tables.sh tests/t-queue.sh tests/t-replay.sh \
    tests/t-run-comm.sh tests/t-run-experts.sh tests/t-run-ranks.sh tests/t-run-ranks-gpu.sh \
    tests/t-drop-ranks-gpu.sh tests/t-soak-ranks-gpu.sh \
    tests/t-rank-env.sh tests/t-rank-launchers.sh tests/t-run-stages.sh \
    tests/t-schedule.sh
# A library that looks like NCCL.
EXTRA_DIST += tests/fake_nccl.c
EXTRA_tests_t_again_DEPENDENCIES = tests/fake_nccl.so
EXTRA_tests_t_rank_heads_DEPENDENCIES = tests/fake_nccl.so
EXTRA_tests_t_rank_sums_DEPENDENCIES = tests/fake_nccl.so
EXTRA_tests_t_tell_DEPENDENCIES = tests/fake_nccl.so
EXTRA_tests_t_world_DEPENDENCIES = tests/fake_nccl.so
CLEANFILES += tests/fake_nccl.so
tests/fake_nccl.so: tests/fake_nccl.c replay/ranks/nccl_api.h base/bf16.h
	$(FAKE_LIBRARY) $(srcdir)/tests/fake_nccl.c
EXTRA_DIST += tests/data/sglang tests/data/trtllm tests/data/vllm
