libattnreplay_a_SOURCES += \
  replay/engine/backend.h replay/cost/backend_cost.c replay/cost/backend_cost.h replay/engine/backends.c replay/sched/batch.c \
  replay/sched/batch.h replay/sched/block_pool.c replay/sched/block_pool.h replay/cost/cost_table.c replay/cost/cost_table.h replay/cost/costs.c \
  replay/cost/costs.h replay/cost/kdtree.c replay/cost/kdtree.h replay/engine/latency.c replay/engine/latency.h replay/sched/policies/orca.c \
  replay/sched/arrivals.c replay/sched/arrivals.h replay/engine/backend.h replay/cost/backend_cost.c replay/cost/backend_cost.h replay/engine/backends.c replay/sched/batch.h \
  replay/sched/block_pool.c replay/sched/block_pool.h replay/engine/latency.c replay/engine/latency.h replay/sched/policies/orca.c \
  replay/sched/policies.c replay/sched/policy.h replay/sched/prefix_cache.c replay/sched/prefix_cache.h replay/engine/prepare.c \
  replay/engine/prepare.h replay/engine/replay.c replay/engine/replay.h replay/sched/policies/sarathi.c replay/sched/sched.c replay/sched/sched.h \
  replay/sched/policies/sglang.c replay/sched/policies/trtllm.c replay/sched/policies/vllm.c

check_PROGRAMS += tests/t-policies tests/t-vllm tests/t-workloads
tests_t_policies_SOURCES = tests/t-policies.c tests/policy-case.c tests/policy-case.h
tests_t_policies_LDADD = $(TEST_LIBS)
tests_t_vllm_SOURCES = tests/t-vllm.c tests/policy-case.c tests/policy-case.h
tests_t_vllm_LDADD   = $(TEST_LIBS)
tests_t_workloads_SOURCES = tests/t-workloads.c tests/policy-case.c tests/policy-case.h
tests_t_workloads_LDADD = $(TEST_LIBS)

check_PROGRAMS += tests/t-prefix
tests_t_prefix_SOURCES = tests/t-prefix.c
tests_t_prefix_LDADD   = $(TEST_LIBS)
tests_t_prefix_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc

check_PROGRAMS += tests/t-arrivals
tests_t_arrivals_SOURCES = tests/t-arrivals.c
tests_t_arrivals_LDADD   = $(TEST_LIBS)
tests_t_arrivals_LDFLAGS = $(FAULT_LINK)

check_PROGRAMS += tests/t-engine
tests_t_engine_SOURCES = tests/t-engine.c
tests_t_engine_LDADD   = $(TEST_LIBS)
tests_t_engine_LDFLAGS = $(FAULT_LINK)

check_PROGRAMS += tests/t-costs
tests_t_costs_SOURCES = tests/t-costs.c
tests_t_costs_LDADD   = $(TEST_LIBS)
tests_t_costs_LDFLAGS = $(FAULT_LINK)

dist_check_SCRIPTS += tests/t-cmd-costs.sh tests/t-replay.sh tests/t-faults.sh tests/t-faults-db.sh \
                      tests/t-schedule.sh

# Backends that run attention.
libattnreplay_a_SOURCES += replay/engine/accuracy.c replay/engine/accuracy.h replay/engine/backend_cpu.c \
                           replay/engine/backend_cuda.h replay/engine/backends_attn.h replay/engine/decoder.h \
                           replay/engine/graphs.h replay/engine/pages.c replay/engine/pages.h replay/engine/rows.c \
                           replay/engine/rows.h replay/engine/act_capture.c replay/engine/act_capture.h \
                           replay/engine/activations.c replay/engine/activations.h \
                           replay/engine/attn_engine.c replay/engine/attn_engine.h \
                           replay/engine/groups.c replay/engine/groups.h
if HAVE_CUDA
libattnreplay_a_SOURCES += replay/engine/act_capture_device.c replay/engine/backend_cuda.c \
                           replay/engine/backend_cuda_memory.c replay/engine/decoder.c \
                           replay/engine/graphs.c
endif

check_PROGRAMS += tests/t-layers
tests_t_layers_SOURCES = tests/t-layers.c
tests_t_layers_LDADD = $(TEST_LIBS)
tests_t_layers_LDFLAGS = $(FAULT_LINK)

check_PROGRAMS += tests/t-accuracy tests/t-pages
tests_t_accuracy_SOURCES = tests/t-accuracy.c
tests_t_accuracy_LDADD = $(TEST_LIBS)
tests_t_pages_SOURCES = tests/t-pages.c
tests_t_pages_LDADD = $(TEST_LIBS)

check_PROGRAMS += tests/t-backend-cpu tests/t-backend-gpu
tests_t_backend_cpu_SOURCES = tests/t-backend-cpu.c tests/backend-case.c tests/backend-case.h
tests_t_backend_cpu_LDADD = $(TEST_LIBS)
tests_t_backend_cpu_LDFLAGS = $(FAULT_LINK)
tests_t_backend_gpu_SOURCES = tests/t-backend-gpu.c tests/backend-case.c tests/backend-case.h
tests_t_backend_gpu_LDADD = $(TEST_LIBS)

check_PROGRAMS += tests/t-graphs-gpu
tests_t_graphs_gpu_SOURCES = tests/t-graphs-gpu.c
tests_t_graphs_gpu_LDADD = $(TEST_LIBS)
