libattnreplay_a_SOURCES += kernels/attn.h kernels/executor.h kernels/method.h kernels/selector.h \
                           kernels/union.h

# Attention over block lists and its executors.
libattnreplay_a_SOURCES += \
  kernels/attend.c kernels/attend.h kernels/decode.c kernels/multiply.c kernels/multiply.h \
  kernels/executors/blocksparse.c kernels/executors/columns.c kernels/executors/columns.h \
  kernels/executors/copy.c kernels/executors/executors.c \
  kernels/executors/gather.c kernels/executors/keys.c kernels/executors/keys.h \
  kernels/executors/paged.c kernels/executors/pool.c kernels/executors/pool.h

check_PROGRAMS += tests/t-attend
tests_t_attend_SOURCES = tests/t-attend.c
tests_t_attend_LDADD   = $(TEST_LIBS)
tests_t_attend_LDFLAGS = $(FAULT_LINK) -Wl,--wrap=pthread_create
libattnreplay_a_SOURCES += kernels/attend_cut.h kernels/attend_part.cuh \
                           kernels/attend_sm90.cuh kernels/cuda.h kernels/device.cuh \
                           kernels/products.cuh kernels/sm90.cuh kernels/softmax.cuh \
                           kernels/tensor_map.h
if HAVE_CUDA
libattnreplay_a_SOURCES += kernels/attend_cut_sm90.cu kernels/attend_device.c \
                           kernels/attend_sm80.cu kernels/attend_sm90.cu kernels/decode_sm80.cu \
                           kernels/executors/columns_device.c kernels/executors/columns_sm80.cu \
                           kernels/executors/columns_sm90.cu kernels/executors/pool_sm80.cu \
                           kernels/tensor_map.c
endif

check_PROGRAMS += tests/t-attend-gpu
tests_t_attend_gpu_SOURCES = tests/t-attend-gpu.c
tests_t_attend_gpu_LDADD   = $(TEST_LIBS)

check_PROGRAMS += tests/t-decode tests/t-decode-gpu
tests_t_decode_SOURCES = tests/t-decode.c
tests_t_decode_LDADD   = $(TEST_LIBS)
tests_t_decode_gpu_SOURCES = tests/t-decode-gpu.c
tests_t_decode_gpu_LDADD   = $(TEST_LIBS)
check_PROGRAMS += tests/t-counts
tests_t_counts_SOURCES = tests/t-counts.c
tests_t_counts_LDADD   = $(TEST_LIBS)
check_PROGRAMS += tests/t-executors
tests_t_executors_SOURCES = tests/t-executors.c
tests_t_executors_LDADD   = $(TEST_LIBS)
tests_t_executors_LDFLAGS = $(FAULT_LINK)

check_PROGRAMS += tests/t-executors-gpu
tests_t_executors_gpu_SOURCES = tests/t-executors-gpu.c
tests_t_executors_gpu_LDADD   = $(TEST_LIBS)

# The row kernels of a decoder layer, and its matrix products.
libattnreplay_a_SOURCES += kernels/gemm.h kernels/layer.c kernels/layer.h
if HAVE_CUDA
libattnreplay_a_SOURCES += kernels/gemm.c kernels/layer_cuda.cu
endif

check_PROGRAMS += tests/t-layer tests/t-layer-gpu
tests_t_layer_SOURCES = tests/t-layer.c
tests_t_layer_LDADD = $(TEST_LIBS)
tests_t_layer_gpu_SOURCES = tests/t-layer-gpu.c
tests_t_layer_gpu_LDADD = $(TEST_LIBS)

# Methods: selectors, one line each, and unions.
libattnreplay_a_SOURCES += kernels/method.c kernels/method_parse.c kernels/union.c kernels/qblk.cuh
libattnreplay_a_SOURCES += kernels/selectors/rows.cuh kernels/selectors/selectors.c \
                           kernels/selectors/top.cuh
libattnreplay_a_SOURCES += kernels/selectors/ashape.c kernels/selectors/ashape.h
libattnreplay_a_SOURCES += kernels/selectors/bfla.c kernels/selectors/bfla.h
libattnreplay_a_SOURCES += kernels/selectors/density.c kernels/selectors/density.h
libattnreplay_a_SOURCES += kernels/selectors/flashprefill.c kernels/selectors/flashprefill.h
libattnreplay_a_SOURCES += kernels/selectors/flexprefill.c kernels/selectors/flexprefill.h
libattnreplay_a_SOURCES += kernels/selectors/lastq.c kernels/selectors/lastq.cuh \
                           kernels/selectors/lastq.h
libattnreplay_a_SOURCES += kernels/selectors/means.c kernels/selectors/means.cuh
libattnreplay_a_SOURCES += kernels/selectors/means.h
libattnreplay_a_SOURCES += kernels/selectors/minference.c kernels/selectors/minference.h
libattnreplay_a_SOURCES += kernels/selectors/none.c
libattnreplay_a_SOURCES += kernels/selectors/oracle.c kernels/selectors/oracle.h
libattnreplay_a_SOURCES += kernels/selectors/pick.cuh
libattnreplay_a_SOURCES += kernels/selectors/proxyattn.c kernels/selectors/proxyattn.cuh \
                           kernels/selectors/proxyattn.h kernels/selectors/tiles.cuh
libattnreplay_a_SOURCES += kernels/selectors/scores.c kernels/selectors/scores.h
libattnreplay_a_SOURCES += kernels/selectors/seer.c kernels/selectors/seer.h
libattnreplay_a_SOURCES += kernels/selectors/quoka.c kernels/selectors/quoka.cuh \
                           kernels/selectors/quoka.h
libattnreplay_a_SOURCES += kernels/selectors/trishape.c kernels/selectors/trishape.h
libattnreplay_a_SOURCES += kernels/selectors/xattention.c kernels/selectors/xattention.cuh \
                           kernels/selectors/xattention.h
if HAVE_CUDA
libattnreplay_a_SOURCES += kernels/method_device.c kernels/union_sm80.cu
libattnreplay_a_SOURCES += kernels/selectors/ashape_sm80.cu
libattnreplay_a_SOURCES += kernels/selectors/bfla_sm80.cu
libattnreplay_a_SOURCES += kernels/selectors/density_sm80.cu
libattnreplay_a_SOURCES += kernels/selectors/flashprefill_sm80.cu
libattnreplay_a_SOURCES += kernels/selectors/flexprefill_sm80.cu
libattnreplay_a_SOURCES += kernels/selectors/lastq_device.c
libattnreplay_a_SOURCES += kernels/selectors/lastq_rows_sm90.cu
libattnreplay_a_SOURCES += kernels/selectors/lastq_sm80.cu
libattnreplay_a_SOURCES += kernels/selectors/lastq_sm90.cu
libattnreplay_a_SOURCES += kernels/selectors/means_sm80.cu
libattnreplay_a_SOURCES += kernels/selectors/minference_sm80.cu
libattnreplay_a_SOURCES += kernels/selectors/oracle_sm80.cu
libattnreplay_a_SOURCES += kernels/selectors/proxyattn_sm80.cu kernels/selectors/proxyattn_sm90.cu
libattnreplay_a_SOURCES += kernels/selectors/seer_sm80.cu
libattnreplay_a_SOURCES += kernels/selectors/quoka_sm80.cu kernels/selectors/quoka_sm90.cu
libattnreplay_a_SOURCES += kernels/selectors/trishape_sm80.cu
libattnreplay_a_SOURCES += kernels/selectors/xattention_sm80.cu kernels/selectors/xattention_sm90.cu
endif

check_PROGRAMS += tests/t-select
tests_t_select_SOURCES = tests/t-select.c
tests_t_select_LDADD   = $(TEST_LIBS)
tests_t_select_LDFLAGS = $(FAULT_LINK)

check_PROGRAMS += tests/t-select-flexprefill tests/t-select-flexprefill-gpu
tests_t_select_flexprefill_SOURCES = tests/t-select-flexprefill.c
tests_t_select_flexprefill_LDADD   = $(TEST_LIBS)
tests_t_select_flexprefill_LDFLAGS = $(FAULT_LINK)
tests_t_select_flexprefill_gpu_SOURCES = tests/t-select-flexprefill-gpu.c
tests_t_select_flexprefill_gpu_LDADD   = $(TEST_LIBS)

check_PROGRAMS += tests/t-select-minference tests/t-select-minference-gpu
tests_t_select_minference_SOURCES = tests/t-select-minference.c
tests_t_select_minference_LDADD   = $(TEST_LIBS)
tests_t_select_minference_LDFLAGS = $(FAULT_LINK)
tests_t_select_minference_gpu_SOURCES = tests/t-select-minference-gpu.c
tests_t_select_minference_gpu_LDADD   = $(TEST_LIBS)
check_PROGRAMS += tests/t-select-bfla tests/t-select-bfla-gpu
tests_t_select_bfla_SOURCES = tests/t-select-bfla.c
tests_t_select_bfla_LDADD   = $(TEST_LIBS)
tests_t_select_bfla_LDFLAGS = $(FAULT_LINK)
tests_t_select_bfla_gpu_SOURCES = tests/t-select-bfla-gpu.c
tests_t_select_bfla_gpu_LDADD   = $(TEST_LIBS)

check_PROGRAMS += tests/t-select-oracle tests/t-select-oracle-gpu
tests_t_select_oracle_SOURCES = tests/t-select-oracle.c
tests_t_select_oracle_LDADD   = $(TEST_LIBS)
tests_t_select_oracle_LDFLAGS = $(FAULT_LINK)
tests_t_select_oracle_gpu_SOURCES = tests/t-select-oracle-gpu.c
tests_t_select_oracle_gpu_LDADD   = $(TEST_LIBS)

check_PROGRAMS += tests/t-ashape
tests_t_ashape_SOURCES = tests/t-ashape.c
tests_t_ashape_LDADD   = $(TEST_LIBS)

check_PROGRAMS += tests/t-select-place tests/t-select-place-gpu
tests_t_select_place_SOURCES = tests/t-select-place.c
tests_t_select_place_LDADD   = $(TEST_LIBS)
tests_t_select_place_gpu_SOURCES = tests/t-select-place-gpu.c
tests_t_select_place_gpu_LDADD   = $(TEST_LIBS)

check_PROGRAMS += tests/t-select-quoka tests/t-select-quoka-gpu
tests_t_select_quoka_SOURCES = tests/t-select-quoka.c
tests_t_select_quoka_LDADD   = $(TEST_LIBS)
tests_t_select_quoka_LDFLAGS = $(FAULT_LINK)
tests_t_select_quoka_gpu_SOURCES = tests/t-select-quoka-gpu.c
tests_t_select_quoka_gpu_LDADD   = $(TEST_LIBS)

check_PROGRAMS += tests/t-select-xattention tests/t-select-xattention-gpu
tests_t_select_xattention_SOURCES = tests/t-select-xattention.c
tests_t_select_xattention_LDADD   = $(TEST_LIBS)
tests_t_select_xattention_LDFLAGS = $(FAULT_LINK)
tests_t_select_xattention_gpu_SOURCES = tests/t-select-xattention-gpu.c
tests_t_select_xattention_gpu_LDADD   = $(TEST_LIBS)
check_PROGRAMS += tests/t-select-seer tests/t-select-seer-gpu
tests_t_select_seer_SOURCES = tests/t-select-seer.c
tests_t_select_seer_LDADD   = $(TEST_LIBS)
tests_t_select_seer_LDFLAGS = $(FAULT_LINK)
tests_t_select_seer_gpu_SOURCES = tests/t-select-seer-gpu.c
tests_t_select_seer_gpu_LDADD   = $(TEST_LIBS)

check_PROGRAMS += tests/t-select-proxyattn tests/t-select-proxyattn-gpu
tests_t_select_proxyattn_SOURCES = tests/t-select-proxyattn.c
tests_t_select_proxyattn_LDADD   = $(TEST_LIBS)
tests_t_select_proxyattn_LDFLAGS = $(FAULT_LINK)
tests_t_select_proxyattn_gpu_SOURCES = tests/t-select-proxyattn-gpu.c
tests_t_select_proxyattn_gpu_LDADD   = $(TEST_LIBS)

check_PROGRAMS += tests/t-select-agree
tests_t_select_agree_SOURCES = tests/t-select-agree.c
tests_t_select_agree_LDADD   = $(TEST_LIBS)

check_PROGRAMS += tests/t-refusals
tests_t_refusals_SOURCES = tests/t-refusals.c
tests_t_refusals_LDADD   = $(TEST_LIBS)

check_PROGRAMS += tests/t-tail
tests_t_tail_SOURCES = tests/t-tail.c
tests_t_tail_LDADD   = $(TEST_LIBS)

check_PROGRAMS += tests/t-select-rules
tests_t_select_rules_SOURCES = tests/t-select-rules.c
tests_t_select_rules_LDADD   = $(TEST_LIBS)

check_PROGRAMS += tests/t-vectors
tests_t_vectors_SOURCES = tests/t-vectors.c
tests_t_vectors_LDADD   = $(TEST_LIBS)

check_PROGRAMS += tests/t-method
tests_t_method_SOURCES = tests/t-method.c
tests_t_method_LDADD   = $(TEST_LIBS)
tests_t_method_LDFLAGS = $(FAULT_LINK)

dist_check_SCRIPTS += tests/t-methods.sh tests/t-refused.sh

check_PROGRAMS += tests/t-select-gpu
tests_t_select_gpu_SOURCES = tests/t-select-gpu.c
tests_t_select_gpu_LDADD   = $(TEST_LIBS)

check_PROGRAMS += tests/t-method-gpu
tests_t_method_gpu_SOURCES = tests/t-method-gpu.c
tests_t_method_gpu_LDADD   = $(TEST_LIBS)

# What attnreplay bench runs.
libattnreplay_a_SOURCES += kernels/bench_case.c kernels/bench_case.h

check_PROGRAMS += tests/t-bench
tests_t_bench_SOURCES = tests/t-bench.c
tests_t_bench_LDADD   = $(TEST_LIBS)
tests_t_bench_LDFLAGS = $(FAULT_LINK)
