/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "kernels/select/plugin.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <sha256.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/binfile.h"

static struct plugin plugins[SELECTORS_MAX];
static int n_plugin;

const struct plugin *plugin_of(const struct selector *s)
{
	for (int i = 0; i < n_plugin; i++)
		if (plugins[i].selector == s)
			return &plugins[i];
	return NULL;
}

static bool is_loaded(const char *sha256)
{
	for (int i = 0; i < n_plugin; i++)
		if (!strcmp(plugins[i].sha256, sha256))
			return true;
	return false;
}

/* Whether a file of size bytes ends before its table of sections, which linkers write last.
 * dlopen() would crash. */
static bool is_cut(const ElfW(Ehdr) * h, uint64_t size)
{
	return !memcmp(h->e_ident, ELFMAG, SELFMAG) &&
	       h->e_shoff + (uint64_t)h->e_shnum * h->e_shentsize > size;
}

static enum ar_status check_file(const char *path, struct ar_err *err)
{
	ElfW(Ehdr) h = { 0 };
	struct infile f;
	enum ar_status st = infile_open(&f, path, err);

	if (!st && f.size >= sizeof h)
		st = infile_read(&f, 0, &h, sizeof h, err);
	if (!st && is_cut(&h, f.size))
		st = ar_fail(err, AR_DATA,
			     "%s: cannot be loaded: its end is missing: build or copy it again",
			     path);
	infile_release(&f);
	return st;
}

/* dlopen() would search for a name without a slash in other folders.  The text of dlerror() begins
 * with the path that was opened. */
static enum ar_status open_object(void **so, const char *path, struct ar_err *err)
{
	enum ar_status st = AR_OK;
	const char *why;
	char *own = NULL;
	size_t n;

	if (asprintf(&own, "%s%s", strchr(path, '/') ? "" : "./", path) < 0)
		return ar_nomem(err);
	*so = dlopen(own, RTLD_NOW | RTLD_LOCAL);
	if (!*so) {
		why = dlerror();
		n = strlen(own);
		if (!strncmp(why, own, n) && !strncmp(why + n, ": ", 2))
			why += n + 2;
		st = ar_fail(err, AR_DATA, "%s: cannot be loaded: %s", path, why);
	}
	free(own);
	return st;
}

/* The version comes first in every version, so it can be read in a descriptor of another one. */
static enum ar_status check_object(const struct selector *s, struct ar_err *err)
{
	if (!s)
		return ar_fail(err, AR_DATA,
			       "it does not define selector_plugin, see kernels/select/selector.h");
	if (s->version != AR_SELECTOR_VERSION)
		return ar_fail(err, AR_DATA,
			       "it is of version %u of selector.h, and this program has %d: build "
			       "it again with the headers of this program",
			       s->version, AR_SELECTOR_VERSION);
	if (s->enqueue && !s->support.cc_min)
		return ar_fail(err, AR_USAGE, "selector '%s': .support: say what its kernels run",
			       s->name);
	return selector_add(s, err);
}

static enum ar_status load_plugin(struct plugin *p, const char *path, struct ar_err *err)
{
	void *so = NULL;
	enum ar_status st = open_object(&so, path, err);

	if (st)
		return st;
	p->selector = dlsym(so, "selector_plugin");
	p->path = strdup(path);
	st = p->path ? check_object(p->selector, err) : ar_nomem(err);
	if (!st)
		return AR_OK;
	ar_err_prefix(err, "%s", path);
	free(p->path);
	dlclose(so);
	return st;
}

enum ar_status plugin_load(const char *path, struct ar_err *err)
{
	struct plugin p = { 0 };
	enum ar_status st = check_file(path, err);

	if (st)
		return st;
	if (!SHA256File(path, p.sha256))
		return ar_fail(err, AR_DATA, "%s: %s", path, strerror(errno));
	if (is_loaded(p.sha256))
		return AR_OK;
	st = load_plugin(&p, path, err);
	if (!st)
		plugins[n_plugin++] = p;
	return st;
}
