libattnreplay_a_SOURCES += kernels/attn.h kernels/executor.h kernels/method.h kernels/selector.h \
                           kernels/union.h
