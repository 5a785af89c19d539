libattnreplay_a_SOURCES += profiler/prof.h profiler/store.h
