/* SPDX-License-Identifier: Apache-2.0 */
/* Selectors that are loaded from files, see selector.h. */
#ifndef AR_SELECT_PLUGIN_H
#define AR_SELECT_PLUGIN_H

#include "base/opt_table.h"
#include "kernels/select/selectors.h"

struct plugin {
	const struct selector *selector;
	char *path;	 /* as the user wrote it */
	char sha256[65]; /* of the file */
};

/* Load the plug-in in file path and add it to the table.  It stays until the program ends.  Does
 * nothing if a file of the same content is loaded.  AR_DATA: the file cannot be read or is no
 * plug-in for this program.  AR_USAGE: as from selector_add().  The message begins with path. */
enum ar_status plugin_load(const char *path, struct ar_err *err);

/* The file that s is from; NULL: it is part of the program. */
const struct plugin *plugin_of(const struct selector *s);

/* The row --selector FILE of a table of options; at: offset of a struct opt_list. */
#define PLUGIN_OPT(at) \
	{ \
		.name = "selector", .type = OPT_LIST, .off = (at), .arg = "FILE.so", \
		.help = "load a selector from a shared object; repeat the option for more", \
		.use = plugin_load, .may_differ = true, .record_only = true \
	}

#endif
