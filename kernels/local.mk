libattnreplay_a_SOURCES += kernels/attn.h kernels/exec/executor.h kernels/methods/method.h kernels/select/selector.h \
                           kernels/union/union.h

# Attention over block lists and its executors.
libattnreplay_a_SOURCES += \
  kernels/attend/attend.c kernels/attend/attend.h kernels/attend/decode.c kernels/prim/multiply.c kernels/prim/multiply.h \
  kernels/exec/blocksparse/blocksparse.c kernels/exec/columns/columns.c kernels/exec/columns/columns.h \
  kernels/exec/copy/copy.c kernels/exec/executors.c \
  kernels/exec/gather/gather.c kernels/exec/keys.c kernels/exec/keys.h \
  kernels/exec/paged/paged.c kernels/exec/pool/pool.c kernels/exec/pool/pool.h

check_PROGRAMS += tests/t-attend
tests_t_attend_SOURCES = tests/t-attend.c
tests_t_attend_LDADD   = $(TEST_LIBS)
tests_t_attend_LDFLAGS = $(FAULT_LINK) -Wl,--wrap=pthread_create
libattnreplay_a_SOURCES += kernels/attend/attend_cut.h kernels/attend/attend_part.cuh \
                           kernels/attend/attend_sm90.cuh kernels/prim/cuda.h kernels/prim/device.cuh \
                           kernels/prim/products.cuh kernels/prim/sm90.cuh kernels/prim/softmax.cuh \
                           kernels/prim/tensor_map.h
if HAVE_CUDA
libattnreplay_a_SOURCES += kernels/attend/attend_cut_sm90.cu kernels/attend/attend_device.c \
                           kernels/attend/attend_sm80.cu kernels/attend/attend_sm90.cu kernels/attend/decode_sm80.cu \
                           kernels/exec/columns/columns_device.c kernels/exec/columns/columns_sm80.cu \
                           kernels/exec/columns/columns_sm90.cu kernels/exec/pool/pool_sm80.cu \
                           kernels/prim/tensor_map.c
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
libattnreplay_a_SOURCES += kernels/layer/gemm.h kernels/layer/layer.c kernels/layer/layer.h
if HAVE_CUDA
libattnreplay_a_SOURCES += kernels/layer/gemm.c kernels/layer/layer_cuda.cu
endif

check_PROGRAMS += tests/t-layer tests/t-layer-gpu
tests_t_layer_SOURCES = tests/t-layer.c
tests_t_layer_LDADD = $(TEST_LIBS)
tests_t_layer_gpu_SOURCES = tests/t-layer-gpu.c
tests_t_layer_gpu_LDADD = $(TEST_LIBS)

# Methods: selectors, one line each, and unions.
libattnreplay_a_SOURCES += kernels/methods/count.c kernels/methods/method.c \
                           kernels/methods/method_parse.c kernels/methods/names.c kernels/methods/shapes.c \
                           kernels/methods/shapes.h kernels/union/union.c kernels/select/qblk.cuh
libattnreplay_a_SOURCES += kernels/select/rows.cuh kernels/select/selectors.c \
                           kernels/select/top.cuh
libattnreplay_a_SOURCES += kernels/select/ashape/ashape.c kernels/select/ashape/ashape.h
libattnreplay_a_SOURCES += kernels/select/bfla/bfla.c kernels/select/bfla/bfla.h
libattnreplay_a_SOURCES += kernels/select/density/density.c kernels/select/density/density.h
libattnreplay_a_SOURCES += kernels/select/flashprefill/flashprefill.c kernels/select/flashprefill/flashprefill.h
libattnreplay_a_SOURCES += kernels/select/flexprefill/flexprefill.c kernels/select/flexprefill/flexprefill.h
libattnreplay_a_SOURCES += kernels/select/lastq/lastq.c kernels/select/lastq/lastq.cuh \
                           kernels/select/lastq/lastq.h
libattnreplay_a_SOURCES += kernels/select/means/means.c kernels/select/means/means.cuh
libattnreplay_a_SOURCES += kernels/select/means/means.h
libattnreplay_a_SOURCES += kernels/select/minference/minference.c kernels/select/minference/minference.h
libattnreplay_a_SOURCES += kernels/select/none/none.c
libattnreplay_a_SOURCES += kernels/select/oracle/oracle.c kernels/select/oracle/oracle.h
libattnreplay_a_SOURCES += kernels/select/pick.cuh
libattnreplay_a_SOURCES += kernels/select/proxyattn/proxyattn.c kernels/select/proxyattn/proxyattn.cuh \
                           kernels/select/proxyattn/proxyattn.h kernels/select/tiles.cuh
libattnreplay_a_SOURCES += kernels/select/scores.c kernels/select/scores.h
libattnreplay_a_SOURCES += kernels/select/seer/seer.c kernels/select/seer/seer.h
libattnreplay_a_SOURCES += kernels/select/quoka/quoka.c kernels/select/quoka/quoka.cuh \
                           kernels/select/quoka/quoka.h
libattnreplay_a_SOURCES += kernels/select/trishape/trishape.c kernels/select/trishape/trishape.h
libattnreplay_a_SOURCES += kernels/select/xattention/xattention.c kernels/select/xattention/xattention.cuh \
                           kernels/select/xattention/xattention.h
if HAVE_CUDA
libattnreplay_a_SOURCES += kernels/methods/method_device.c kernels/union/union_sm80.cu
libattnreplay_a_SOURCES += kernels/select/ashape/ashape_sm80.cu
libattnreplay_a_SOURCES += kernels/select/bfla/bfla_sm80.cu
libattnreplay_a_SOURCES += kernels/select/density/density_sm80.cu
libattnreplay_a_SOURCES += kernels/select/flashprefill/flashprefill_sm80.cu
libattnreplay_a_SOURCES += kernels/select/flexprefill/flexprefill_sm80.cu
libattnreplay_a_SOURCES += kernels/select/lastq/lastq_device.c
libattnreplay_a_SOURCES += kernels/select/lastq/lastq_rows_sm90.cu
libattnreplay_a_SOURCES += kernels/select/lastq/lastq_sm80.cu
libattnreplay_a_SOURCES += kernels/select/lastq/lastq_sm90.cu
libattnreplay_a_SOURCES += kernels/select/means/means_sm80.cu
libattnreplay_a_SOURCES += kernels/select/minference/minference_sm80.cu
libattnreplay_a_SOURCES += kernels/select/oracle/oracle_sm80.cu
libattnreplay_a_SOURCES += kernels/select/proxyattn/proxyattn_sm80.cu kernels/select/proxyattn/proxyattn_sm90.cu
libattnreplay_a_SOURCES += kernels/select/seer/seer_sm80.cu
libattnreplay_a_SOURCES += kernels/select/quoka/quoka_sm80.cu kernels/select/quoka/quoka_sm90.cu
libattnreplay_a_SOURCES += kernels/select/trishape/trishape_sm80.cu
libattnreplay_a_SOURCES += kernels/select/xattention/xattention_sm80.cu kernels/select/xattention/xattention_sm90.cu
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

check_PROGRAMS += tests/t-selection-shapes
tests_t_selection_shapes_SOURCES = tests/t-selection-shapes.c
tests_t_selection_shapes_LDADD   = $(TEST_LIBS)
tests_t_selection_shapes_LDFLAGS = $(FAULT_LINK)

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
libattnreplay_a_SOURCES += src/bench/bench_case.c src/bench/bench_case.h

check_PROGRAMS += tests/t-bench
tests_t_bench_SOURCES = tests/t-bench.c
tests_t_bench_LDADD   = $(TEST_LIBS)
tests_t_bench_LDFLAGS = $(FAULT_LINK)
