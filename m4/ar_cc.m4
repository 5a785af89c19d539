dnl SPDX-License-Identifier: Apache-2.0
# AR_CC_STD(STD): make sure the C compiler accepts -std=STD and use it.
AC_DEFUN([AR_CC_STD], [
  AC_CACHE_CHECK([whether $CC accepts -std=$1], [ar_cv_cc_std_$1], [
    ar_save_CFLAGS=$CFLAGS
    CFLAGS="$CFLAGS -std=$1"
    AC_COMPILE_IFELSE([AC_LANG_PROGRAM([], [[_Static_assert(1, "c11");]])],
      [ar_cv_cc_std_$1=yes], [ar_cv_cc_std_$1=no])
    CFLAGS=$ar_save_CFLAGS])
  AS_IF([test "$ar_cv_cc_std_$1" = yes], [STD_CFLAGS=-std=$1],
    [AC_MSG_ERROR([$CC does not accept -std=$1])])
  AC_SUBST([STD_CFLAGS])
])

# AR_CC_WARNINGS(FLAGS): collect the flags the compiler knows in WARN_CFLAGS.
AC_DEFUN([AR_CC_WARNINGS], [
  WARN_CFLAGS=
  for ar_flag in m4_normalize([$1]); do
    ar_save_CFLAGS=$CFLAGS
    CFLAGS="$CFLAGS -Werror $ar_flag"
    AC_COMPILE_IFELSE([AC_LANG_PROGRAM()],
      [WARN_CFLAGS="$WARN_CFLAGS $ar_flag"])
    CFLAGS=$ar_save_CFLAGS
  done
  AC_ARG_ENABLE([werror],
    [AS_HELP_STRING([--enable-werror], [treat C warnings as errors])])
  AS_IF([test "$enable_werror" = yes], [WARN_CFLAGS="$WARN_CFLAGS -Werror"])
  AC_SUBST([WARN_CFLAGS])
])

# AR_ENABLE_SANITIZERS: --enable-sanitizers[=LIST], default address,undefined.  The first finding
# ends the program, so a test fails with it.  Programs have a fixed address.  Else each start
# would relocate 200,000 pointers of the sanitizer's table of all strings, in a quarter of its time.
# Each end searches gcc's two runtimes for leaks, 5 MB of each.  Linked statically, one has less.
AC_DEFUN([AR_ENABLE_SANITIZERS], [
  AC_ARG_ENABLE([sanitizers],
    [AS_HELP_STRING([--enable-sanitizers@<:@=LIST@:>@],
      [build host code with -fsanitize=LIST @<:@address,undefined@:>@])],
    [AS_IF([test "$enable_sanitizers" = yes],
       [enable_sanitizers=address,undefined])], [enable_sanitizers=no])
  SAN_CFLAGS= SAN_LDFLAGS=
  AS_IF([test "$enable_sanitizers" != no],
    [SAN_CFLAGS="-fsanitize=$enable_sanitizers -fno-sanitize-recover=all -fno-omit-frame-pointer"
     SAN_LDFLAGS="$SAN_CFLAGS -no-pie"
     ar_save_LDFLAGS=$LDFLAGS
     LDFLAGS="$LDFLAGS $SAN_LDFLAGS -static-libubsan"
     AC_LINK_IFELSE([AC_LANG_PROGRAM()], [SAN_LDFLAGS="$SAN_LDFLAGS -static-libubsan"])
     LDFLAGS=$ar_save_LDFLAGS])
  AC_SUBST([SAN_CFLAGS])
  AC_SUBST([SAN_LDFLAGS])
])

# AR_LIBRARY(PREFIX, MODULE, PACKAGE): set PREFIX_CFLAGS and PREFIX_LIBS from pkg-config, or add to
# ar_missing, and to ar_packages the package of Debian and Ubuntu.
AC_DEFUN([AR_LIBRARY], [
  PKG_CHECK_MODULES([$1], [$2], [],
    [ar_missing="${ar_missing:+$ar_missing,} $2" ar_packages="$ar_packages $3"])
])
