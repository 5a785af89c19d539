dnl SPDX-License-Identifier: Apache-2.0
# AR_CHECK_CUDA
#
#   --with-cuda=DIR    toolkit root (a DIR with bin/nvcc)
#   --without-cuda, --disable-cuda
#                      build without device code
#   --with-cupti=DIR   DIR/include/cupti.h
#   --with-cuda-arch=LIST
#                      comma separated, default 90a.  90a: machine code for compute capability
#                      9.0.  80-virtual: PTX for 8.0, which the driver compiles for GPUs from 8.0
#                      on when they run it.  Only 90a and 90a-virtual have the kernels for Hopper.
#
# The program links cudart statically, the tests share one.  cuBLAS and CUPTI are
# loaded at run time, so a build needs their headers only, and the program starts
# where neither they nor a driver exist.
#
# Sets NVCC NVCC_GENCODE NVCC_SPILLS CUDA_CPPFLAGS CUDA_LIBDIR CUDA_LDFLAGS CUDA_LIBS,
# CUDA_SHARED_LIBS (CUDA_LIBS with the shared cudart), the conditionals HAVE_CUDA
# and HAVE_CUPTI, and the macros HAVE_CUDA, HAVE_CUPTI (always
# defined, 0 or 1), HAVE_SM90A (0 or 1), CUDA_MAJOR (a string, the version in names of libraries)
# and CUDA_LIBDIR (where the toolkit keeps its libraries).
AC_DEFUN([AR_CHECK_CUDA], [
  AC_ARG_VAR([NVCC],      [CUDA compiler driver])
  AC_ARG_VAR([NVCCFLAGS], [flags for the CUDA compiler])
  AC_ARG_WITH([cuda],
    [AS_HELP_STRING([--with-cuda=DIR],
      [CUDA toolkit root @<:@CUDA_HOME, CUDA_PATH, PATH, then /usr/local/cuda@:>@])],
    [], [with_cuda=check])
  AC_ARG_ENABLE([cuda],
    [AS_HELP_STRING([--disable-cuda], [same as --without-cuda])],
    [AS_IF([test "$enable_cuda" = no], [with_cuda=no])])
  AC_ARG_WITH([cupti],
    [AS_HELP_STRING([--with-cupti=DIR], [CUPTI root @<:@look in the toolkit@:>@])],
    [], [with_cupti=check])
  AC_ARG_WITH([cuda-arch],
    [AS_HELP_STRING([--with-cuda-arch=LIST], [compute capabilities of machine code; 80-virtual: PTX for 8.0 @<:@90a@:>@])],
    [], [with_cuda_arch=90a])

  have_cuda=no have_cupti=no have_sm90a=0 cuda_version= cuda_major= cuda_root= ar_lib=
  CUDA_CPPFLAGS= CUDA_LDFLAGS= CUDA_LIBS= CUDA_SHARED_LIBS= NVCC_GENCODE=

  AS_CASE([$with_cuda], [no], [], [AR_FIND_CUDA])
  AS_IF([test "$have_cuda" = no && test "$with_cuda" != no \
         && test "$with_cuda" != check],
    [AC_MSG_ERROR([--with-cuda was given but no working CUDA toolkit was found])])

  AS_IF([test "$have_cuda" = yes && test "$with_cupti" != no], [AR_FIND_CUPTI])
  AS_IF([test "$have_cupti" = no && test "$with_cupti" != no \
         && test "$with_cupti" != check],
    [AC_MSG_ERROR([--with-cupti was given but CUPTI was not found])])

  AS_IF([test "$have_cuda" = yes],  [ar_def=1], [ar_def=0])
  AC_DEFINE_UNQUOTED([HAVE_CUDA],  [$ar_def], [1 if device code is built.])
  AS_IF([test "$have_cupti" = yes], [ar_def=1], [ar_def=0])
  AC_DEFINE_UNQUOTED([HAVE_CUPTI], [$ar_def], [1 if CUPTI's headers were found.])
  AC_DEFINE_UNQUOTED([HAVE_SM90A], [$have_sm90a], [1 if the kernels for Hopper are built.])
  AC_DEFINE_UNQUOTED([CUDA_MAJOR], ["$cuda_major"], [The first number of CUDA's version.])
  AC_DEFINE_UNQUOTED([CUDA_LIBDIR], ["$ar_lib"], [Where the toolkit keeps its libraries.])
  AM_CONDITIONAL([HAVE_CUDA],  [test "$have_cuda" = yes])
  AM_CONDITIONAL([HAVE_CUPTI], [test "$have_cupti" = yes])

  # distcheck must configure the same way this tree was configured.
  AR_DISTCHECK_FLAGS=
  AS_IF([test "$have_cuda" = yes],
    [AR_DISTCHECK_FLAGS="--with-cuda=$cuda_root --with-cuda-arch=$with_cuda_arch"],
    [AR_DISTCHECK_FLAGS=--without-cuda])
  AC_SUBST([AR_DISTCHECK_FLAGS])

  # Each version allocates registers anew.  The kernels were fitted to CUDA 13.
  NVCC_SPILLS=-warn-spills
  AS_IF([test "${cuda_major:-0}" -ge 13], [NVCC_SPILLS=$NVCC_SPILLS,-Werror])

  AC_SUBST([NVCC_GENCODE])  AC_SUBST([NVCC_SPILLS])  AC_SUBST([CUDA_MAJOR], [$cuda_major])
  AC_SUBST([CUDA_CPPFLAGS])  AC_SUBST([CUDA_LDFLAGS])  AC_SUBST([CUDA_LIBS])
  AC_SUBST([CUDA_SHARED_LIBS])  AC_SUBST([CUDA_LIBDIR], [$ar_lib])
])

# AR_FIRST_DIR(VAR, FILE, DIRS): VAR = first DIR of DIRS that holds FILE.
AC_DEFUN([AR_FIRST_DIR], [
  $1=
  for ar_dir in $3; do
    AS_IF([test -e "$ar_dir/$2"], [$1=$ar_dir; break])
  done
])

AC_DEFUN([AR_FIND_CUDA], [
  AS_CASE([$with_cuda],
    [check|yes], [ar_path=${CUDA_HOME:+$CUDA_HOME/bin:}${CUDA_PATH:+$CUDA_PATH/bin:}$PATH:/usr/local/cuda/bin],
    [ar_path=$with_cuda/bin])
  AC_PATH_PROG([NVCC], [nvcc], [], [$ar_path])
  AS_IF([test -n "$NVCC"], [
    AS_CASE([$with_cuda],
      [check|yes], [cuda_root=`AS_DIRNAME(["$NVCC"])`/..
                    cuda_root=`cd "$cuda_root" && pwd`],
      [cuda_root=$with_cuda])
    for ar_arch in `echo "$with_cuda_arch" | tr , ' '`; do
      ar_cc=`AS_ECHO(["$ar_arch"]) | $SED 's/-virtual$//'`
      AS_CASE([$ar_arch], [*-virtual], [ar_code=compute], [ar_code=sm])
      AS_IF([test "$ar_cc" = 90a], [have_sm90a=1])
      NVCC_GENCODE="$NVCC_GENCODE -gencode=arch=compute_$ar_cc,code=${ar_code}_$ar_cc"
    done

    AC_MSG_CHECKING([the nvcc version])
    cuda_version=`"$NVCC" --version | $SED -n 's/.*release \(@<:@0-9.@:>@*\).*/\1/p'`
    AC_MSG_RESULT([$cuda_version])
    AS_VERSION_COMPARE([$cuda_version], [12.4],
      [AC_MSG_ERROR([$NVCC is of CUDA $cuda_version, and 12.4 is needed; use --without-cuda to do without])])
    cuda_major=`AS_ECHO(["$cuda_version"]) | $SED 's/\..*//'`

    AC_MSG_CHECKING([whether nvcc compiles for $with_cuda_arch])
    cat >conftest.cu <<_EOF_CU
#include <chrono>
#include <cuda_runtime.h>
__global__ void k(int *p) { *p = 1; }
extern "C" int f(void) { k<<<1, 1>>>(0); return cudaGetLastError(); }
extern "C" long g(void) { return std::chrono::steady_clock::now().time_since_epoch().count(); }
_EOF_CU
    AS_IF([$NVCC $NVCC_GENCODE $NVCCFLAGS -c -o conftest_cu.$OBJEXT conftest.cu >&AS_MESSAGE_LOG_FD 2>&1],
      [AC_MSG_RESULT([yes])],
      [AC_MSG_RESULT([no])
       AC_MSG_ERROR([$NVCC cannot build a kernel, see config.log; use --without-cuda to do without])])

    AR_FIRST_DIR([ar_inc], [cuda_runtime_api.h],
      [$cuda_root/include $cuda_root/targets/x86_64-linux/include])
    AR_FIRST_DIR([ar_lib], [libcudart_static.a],
      [$cuda_root/lib64 $cuda_root/lib $cuda_root/targets/x86_64-linux/lib])
    AS_IF([test -e "$ar_inc/cublas_v2.h"], [],
      [AC_MSG_ERROR([cublas_v2.h is not beside cuda_runtime_api.h; install the toolkit's cuBLAS headers or use --without-cuda])])
    CUDA_CPPFLAGS="-isystem $ar_inc"
    CUDA_LDFLAGS="-L$ar_lib"
    CUDA_LIBS="-lcudart_static -lrt -lpthread -ldl"
    # Objects from nvcc are C++ objects; ask the linker whether a C link of one
    # of them needs libstdc++.
    AC_MSG_CHECKING([how to link nvcc objects with $CC])
    ar_save_LIBS=$LIBS ar_save_LDFLAGS=$LDFLAGS
    LDFLAGS="$LDFLAGS $CUDA_LDFLAGS"
    for ar_cxx in '' -lstdc++; do
      LIBS="conftest_cu.$OBJEXT $CUDA_LIBS $ar_cxx $ar_save_LIBS"
      AC_LINK_IFELSE([AC_LANG_SOURCE([[int f(void); int main(void) { return f(); }]])],
        [have_cuda=yes; CUDA_LIBS="$CUDA_LIBS $ar_cxx"; break])
    done
    LIBS=$ar_save_LIBS LDFLAGS=$ar_save_LDFLAGS
    AC_MSG_RESULT([$have_cuda $CUDA_LIBS])
    CUDA_SHARED_LIBS=`echo "$CUDA_LIBS" | $SED 's/-lcudart_static/-lcudart/'`
  ])
  rm -f conftest*
])

# The header lies in extras/CUPTI of a toolkit, or merged into its include
# folder by distributions and wheels.
AC_DEFUN([AR_FIND_CUPTI], [
  AS_CASE([$with_cupti],
    [check|yes], [ar_roots="$cuda_root/extras/CUPTI/include $ar_inc"],
    [ar_roots=$with_cupti/include])
  AC_MSG_CHECKING([for cupti.h])
  AR_FIRST_DIR([ar_cupti_inc], [cupti.h], [$ar_roots])
  AS_IF([test -n "$ar_cupti_inc"], [
    have_cupti=yes
    AS_IF([test "$ar_cupti_inc" != "$ar_inc"],
      [CUDA_CPPFLAGS="$CUDA_CPPFLAGS -isystem $ar_cupti_inc"])])
  AC_MSG_RESULT([${ar_cupti_inc:-no}])
])
