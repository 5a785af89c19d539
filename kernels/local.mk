# SPDX-License-Identifier: Apache-2.0
# Names of device code.  NAME_sm90.cu: needs Hopper (compute capability 9.0).  NAME_sm80.cu: needs
# compute capability 8.0.  NAME.cu: any device runs it, or it picks among the others by device;
# NAME_device.cu or NAME_device.c where NAME.c exists, as members of an archive need different base
# names.
# Methods: selectors, unions, executors; and the kernels of a decoder layer.
libattnreplay_a_SOURCES += \
  kernels/phase.h kernels/row_kind.h kernels/support.c kernels/support.h \
  kernels/attend/attend.c kernels/attend/attend.h kernels/attend/attend_cut.h \
    kernels/attend/attend_part.cuh kernels/attend/attend_sm90.cuh \
    kernels/attend/attend_tile.cuh \
    kernels/attend/decode_line.cuh kernels/attend/decode_step.cuh \
    kernels/attend/decode_sums.cuh \
  kernels/delta/delta.c kernels/delta/delta.h kernels/delta/delta_chunk.cuh \
    kernels/delta/delta_rows.cuh kernels/delta/delta_walk.h \
    kernels/delta/delta_work.h \
  kernels/drop/drop.cuh kernels/drop/dropper.h kernels/drop/droppers.c \
    kernels/drop/kept.c kernels/drop/kept.h kernels/drop/layer_list.c kernels/drop/layer_list.h \
    kernels/drop/mass.c kernels/drop/mass.h kernels/drop/sum_ranks.c kernels/drop/sum_ranks.h \
  kernels/drop/lazyllm/lazyllm.c kernels/drop/lazyllm/lazyllm.h \
  kernels/drop/sliminfer/sliminfer.c kernels/drop/sliminfer/sliminfer.h \
  kernels/drop/uniprefill/uniprefill.c kernels/drop/uniprefill/uniprefill.h \
  kernels/evict/evictor.h kernels/evict/evictors.c \
  kernels/evict/h2o/h2o.c kernels/evict/h2o/h2o.h \
  kernels/evict/snapkv/snapkv.c kernels/evict/snapkv/snapkv.h \
  kernels/evict/streaming/streaming.c kernels/evict/streaming/streaming.h \
  kernels/exec/executor.h kernels/exec/executors.c kernels/exec/keys.c kernels/exec/keys.h \
  kernels/exec/blocksparse/blocksparse.c \
  kernels/exec/columns/columns.c kernels/exec/columns/columns.h \
  kernels/exec/copy/copy.c \
  kernels/exec/decode/decode.c \
  kernels/exec/gather/gather.c \
  kernels/exec/lists/lists.c \
  kernels/exec/paged/paged.c \
  kernels/exec/pool/pool.c kernels/exec/pool/pool.h \
  kernels/layer/gemm.h kernels/layer/layer.c kernels/layer/layer.h \
  kernels/methods/accuracy.c kernels/methods/accuracy.h kernels/methods/accuracy_row.h \
    kernels/methods/count.c kernels/methods/guarded.c kernels/methods/guarded.h \
    kernels/methods/method.c kernels/methods/method.h kernels/methods/method_parse.c \
    kernels/methods/names.c kernels/methods/plan.c kernels/methods/plan.h \
    kernels/methods/plan_parse.c kernels/methods/reuse.c kernels/methods/reuse.h \
    kernels/methods/selection_count.h kernels/methods/shapes.c kernels/methods/shapes.h \
    kernels/methods/skip.c kernels/methods/skip.h \
  kernels/prim/cluster.h kernels/prim/cuda.h kernels/prim/device.cuh \
    kernels/prim/group_registers.cuh kernels/prim/multiply.c \
    kernels/prim/multiply.h kernels/prim/products.cuh kernels/prim/ring.cuh \
    kernels/prim/sm90.cuh kernels/prim/softmax.cuh kernels/prim/tensor_map.h \
  kernels/select/pick.cuh kernels/select/pieces.c kernels/select/pieces.cuh \
    kernels/select/pieces.h kernels/select/plugin.c kernels/select/plugin.h \
    kernels/select/qblk.cuh kernels/select/rows.cuh kernels/select/scores.c \
    kernels/select/scores.h kernels/select/selector_check.c kernels/select/selectors.c \
    kernels/select/selectors.h kernels/select/tiles.cuh kernels/select/top.c \
    kernels/select/top.cuh kernels/select/top.h kernels/select/work.c \
  kernels/select/ashape/ashape.c kernels/select/ashape/ashape.h \
  kernels/select/bfla/bfla.c kernels/select/bfla/bfla.h \
  kernels/select/bounds/bounds.c kernels/select/bounds/bounds.h \
  kernels/select/density/density.c kernels/select/density/density.h \
  kernels/select/duo/duo.c kernels/select/duo/duo.h \
  kernels/select/flashprefill/flashprefill.c kernels/select/flashprefill/flashprefill.h \
  kernels/select/flexprefill/flexprefill.c kernels/select/flexprefill/flexprefill.h \
  kernels/select/lastq/lastq.c kernels/select/lastq/lastq.cuh kernels/select/lastq/lastq.h \
    kernels/select/lastq/lastq_units.cuh \
  kernels/select/means/means.c kernels/select/means/means.cuh kernels/select/means/means.h \
  kernels/select/minference/minference.c kernels/select/minference/minference.h \
  kernels/select/none/none.c \
  kernels/select/oracle/oracle.c kernels/select/oracle/oracle.h \
  kernels/select/proxyattn/proxyattn.c kernels/select/proxyattn/proxyattn.cuh \
    kernels/select/proxyattn/proxyattn.h \
  kernels/select/quest/quest.c kernels/select/quest/quest.h \
  kernels/select/quoka/quoka.c kernels/select/quoka/quoka.cuh kernels/select/quoka/quoka.h \
  kernels/select/rocket/rocket.c kernels/select/rocket/rocket.h \
  kernels/select/seer/seer.c kernels/select/seer/seer.h \
  kernels/select/streaming/streaming.c kernels/select/streaming/streaming.h \
  kernels/select/topk/topk.c kernels/select/topk/topk.h \
  kernels/select/trishape/trishape.c kernels/select/trishape/trishape.h \
  kernels/select/twilight/twilight.c kernels/select/twilight/twilight.h \
  kernels/select/xattention/xattention.c kernels/select/xattention/xattention.cuh \
    kernels/select/xattention/xattention.h \
  kernels/share/share.c kernels/share/share.h \
  kernels/ssm/ssm.c kernels/ssm/ssm.h kernels/ssm/ssm_chunk.cuh kernels/ssm/ssm_work.h \
  kernels/state/state.c kernels/state/state.h kernels/state/state_rows.cuh \
    kernels/state/state_step.cuh kernels/state/state_store.cuh \
  kernels/union/union.c kernels/union/union.h
if HAVE_CUDA
libattnreplay_a_SOURCES += \
  kernels/attend/attend_device.c \
  kernels/delta/delta_device.c \
  kernels/exec/columns/columns_device.c \
  kernels/layer/gemm.c \
  kernels/methods/method_device.c \
  kernels/prim/cluster.c kernels/prim/tensor_map.c \
  kernels/select/selector_device.c \
  kernels/select/lastq/lastq_device.c \
  kernels/ssm/ssm_device.c
DEVICE_CODE += \
  kernels/attend/attend_cut_sm90.cu kernels/attend/attend_sm80.cu kernels/attend/attend_sm90.cu \
    kernels/attend/decode_sm80.cu kernels/attend/decode_sm90.cu \
  kernels/delta/delta_chunk_sm80.cu kernels/delta/delta_keys_sm90.cu kernels/delta/delta_rows.cu \
    kernels/delta/delta_scan_sm80.cu kernels/delta/delta_scan_sm90.cu \
    kernels/delta/delta_step_sm80.cu kernels/delta/delta_step_sm90.cu \
  kernels/drop/index_device.cu kernels/drop/mass_sm80.cu kernels/drop/sum_ranks_device.cu \
  kernels/drop/lazyllm/lazyllm_device.cu \
  kernels/drop/sliminfer/sliminfer_device.cu \
  kernels/drop/uniprefill/uniprefill_device.cu \
  kernels/evict/evict_device.cu kernels/evict/h2o/h2o_device.cu \
  kernels/evict/snapkv/snapkv_device.cu \
  kernels/exec/columns/columns_sm80.cu kernels/exec/columns/columns_sm90.cu \
  kernels/exec/pool/pool_device.cu \
  kernels/layer/layer_device.cu \
  kernels/methods/accuracy_device.cu \
  kernels/select/ashape/ashape_device.cu \
  kernels/select/bfla/bfla_sm80.cu \
  kernels/select/bounds/bounds_device.cu \
  kernels/select/density/density_device.cu \
  kernels/select/duo/duo_device.cu \
  kernels/select/flashprefill/flashprefill_sm80.cu \
  kernels/select/flexprefill/flexprefill_sm80.cu \
  kernels/select/lastq/lastq_pool.cu kernels/select/lastq/lastq_rows_sm90.cu \
    kernels/select/lastq/lastq_sm80.cu kernels/select/lastq/lastq_sm90.cu \
  kernels/select/means/means_device.cu \
  kernels/select/minference/minference_sm80.cu \
  kernels/select/oracle/oracle_sm80.cu \
  kernels/select/proxyattn/proxyattn_device.cu kernels/select/proxyattn/proxyattn_sm80.cu \
    kernels/select/proxyattn/proxyattn_sm90.cu \
  kernels/select/quest/quest_sm80.cu \
  kernels/select/quoka/quoka_device.cu kernels/select/quoka/quoka_sm80.cu \
    kernels/select/quoka/quoka_sm90.cu \
  kernels/select/rocket/rocket_sm80.cu \
  kernels/select/seer/seer_sm80.cu \
  kernels/select/streaming/streaming_device.cu \
  kernels/select/topk/topk_device.cu \
  kernels/select/trishape/trishape_device.cu \
  kernels/select/twilight/twilight_sm80.cu \
  kernels/select/xattention/xattention_device.cu kernels/select/xattention/xattention_sm80.cu \
    kernels/select/xattention/xattention_sm90.cu \
  kernels/share/share_device.cu \
  kernels/ssm/ssm_rows.cu kernels/ssm/ssm_scan_sm80.cu kernels/ssm/ssm_sm90.cu \
    kernels/ssm/ssm_step.cu \
  kernels/state/state_tail.cu \
  kernels/union/union_device.cu
endif

# The headers for plug-ins, in the folder attnreplay of the include files; what they declare is in
# plugin.list.
nobase_pkginclude_HEADERS += \
  base/bf16.h base/both.h base/opt_table.h base/status.h \
  kernels/attn.h kernels/select/selector.h kernels/select/work.h model/cache_layout.h
EXTRA_DIST += kernels/select/plugin.list
PLUGIN_EXPORTS = -Wl,--dynamic-list=$(srcdir)/kernels/select/plugin.list

check_PROGRAMS += \
  tests/fuzz-plan \
  tests/t-accuracy tests/t-accuracy-gpu \
  tests/t-ashape \
  tests/t-attend tests/t-attend-gpu \
  tests/t-beside-gpu \
  tests/t-bounds \
  tests/t-counts \
  tests/t-decode tests/t-decode-gpu \
  tests/t-delta tests/t-delta-gpu \
  tests/t-drop tests/t-drop-gpu \
  tests/t-drop-kept tests/t-drop-prune tests/t-drop-ranks tests/t-drop-uniprefill \
  tests/t-evict tests/t-evict-gpu tests/t-evict-rules \
  tests/t-executors tests/t-executors-gpu \
  tests/t-guarded \
  tests/t-layer tests/t-layer-gpu tests/t-layer-rows-gpu \
  tests/t-share-gpu \
  tests/t-method tests/t-method-gpu \
  tests/t-multiply \
  tests/t-plan \
  tests/t-refusals \
  tests/t-select tests/t-select-gpu \
  tests/t-select-agree \
  tests/t-select-bfla tests/t-select-bfla-gpu \
  tests/t-select-decode tests/t-select-decode-gpu \
  tests/t-select-duo \
  tests/t-select-flexprefill tests/t-select-flexprefill-gpu \
  tests/t-select-minference tests/t-select-minference-gpu \
  tests/t-select-oracle tests/t-select-oracle-gpu \
  tests/t-select-place tests/t-select-place-gpu \
  tests/t-select-proxyattn tests/t-select-proxyattn-gpu \
  tests/t-select-quoka tests/t-select-quoka-gpu \
  tests/t-select-rules \
  tests/t-select-seer tests/t-select-seer-gpu \
  tests/t-select-xattention tests/t-select-xattention-gpu \
  tests/t-selection-shapes \
  tests/t-selectors \
  tests/t-skip tests/t-skip-gpu \
  tests/t-ssm tests/t-ssm-gpu \
  tests/t-support \
  tests/t-tail \
  tests/t-vectors
dist_check_SCRIPTS += \
  tests/t-methods.sh tests/t-plugin.sh tests/t-refused.sh tests/t-skip-run.sh
