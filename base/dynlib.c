/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "base/dynlib.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

static void *try_open(const char *dir, const char *sub, const char *soname)
{
	char path[4096];

	if (!dir || !*dir)
		return NULL;
	snprintf(path, sizeof path, "%s%s/%s", dir, sub, soname);
	return dlopen(path, RTLD_NOW | RTLD_LOCAL);
}

static void *open_any(const char *soname, const char *env)
{
	static const char *const sub[] = { "/lib64", "/extras/CUPTI/lib64" };
	const char *file = getenv(env), *home = getenv("CUDA_HOME");
	void *so;

	if (file) /* the user's choice: no further search */
		return dlopen(file, RTLD_NOW | RTLD_LOCAL);
	so = dlopen(soname, RTLD_NOW | RTLD_LOCAL);
	for (int i = 0; i < 2 && !so; i++)
		so = try_open(home, sub[i], soname);
	if (!so)
		so = try_open(CUDA_LIBDIR, "", soname);
	for (int i = 0; i < 2 && !so; i++)
		so = try_open("/usr/local/cuda", sub[i], soname);
	return so;
}

enum ar_status dynlib_load(const char *soname, const char *env, const struct dynlib_sym *syms,
			   struct ar_err *err)
{
	void *so = open_any(soname, env);

	if (!so && getenv(env))
		return ar_fail(err, AR_NODEV, "cannot load '%s', which %s names", getenv(env), env);
	if (!so)
		return ar_fail(err, AR_NODEV, "cannot load %s; set %s to its path", soname, env);
	for (; syms->name; syms++) {
		*syms->to = dlsym(so, syms->name);
		if (!*syms->to) {
			dlclose(so);
			return ar_fail(err, AR_NODEV, "%s lacks %s", soname, syms->name);
		}
	}
	return AR_OK;
}
