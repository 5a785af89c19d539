/* SPDX-License-Identifier: Apache-2.0 */
/* The format of each module by its name, from a quantization_config. */
#ifndef AR_QUANT_RULES_H
#define AR_QUANT_RULES_H

#include <regex.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"
#include "model/format.h"

struct cJSON;
struct cache_layout;

/* How a module's name is compared with the texts of a list, as vLLM does. */
enum quant_match {
	QUANT_WHOLE,	 /* equal; experts also by a text that begins with their name */
	QUANT_SUBSTRING, /* the name contains the text */
	QUANT_WILDCARD,	 /* any of these two, or the text is a pattern of fnmatch() */
	QUANT_REGEX	 /* equal, or after "re:" a regular expression for the name's start */
};

struct quant_list {
	enum quant_match match;
	size_t n;
	struct quant_text {
		const char *text; /* of the config */
		bool is_regex;
		regex_t regex;
	} * text; /* [n] */
};

/* A group of modules with a format of its own. */
struct quant_group {
	struct quant_list targets;
	bool linear; /* all linear modules are targets */
	struct linear_format format;
};

enum { QUANT_GROUPS_MAX = 16 };

/* A module has the first that applies: bf16 if it is excluded; the format of its name; that of its
 * group; base. */
struct quant_rules {
	const char *model; /* for messages */
	struct linear_format base;
	bool head;	   /* the head is a module like others; else it is bf16 */
	bool experts_only; /* all others are bf16 */
	struct quant_list exclude;
	size_t n_group;
	struct quant_group group[QUANT_GROUPS_MAX];
	size_t n_named;
	struct quant_named {
		const char *name;
		struct linear_format format;
	} * named; /* [n_named], sorted by name */
	const struct cache_layout *kv;
	char kv_unknown[64]; /* what the config says, if kv does not follow it; else "" */
};

/* Fill r from o, an object.  The texts of r are of o.  Release r after a failure, too.  AR_DATA: it
 * says what is not known; the message names model, key and value. */
enum ar_status quant_rules_read(struct quant_rules *r, const char *model, const struct cJSON *o,
				struct ar_err *err);
void quant_rules_release(struct quant_rules *r);

/* The list of the strings of array list (NULL: none), or of the names of an object.  skip: leave
 * out texts that do not begin with it, and take it off; NULL: take all. */
enum ar_status quant_list_init(struct quant_list *l, enum quant_match match,
			       const struct cJSON *list, const char *skip, const char *model,
			       struct ar_err *err);
void quant_list_release(struct quant_list *l);
bool quant_list_has(const struct quant_list *l, const char *name);

enum quant_module {
	QUANT_LINEAR,
	QUANT_EXPERTS, /* what begins with its name and a dot is part of it */
	QUANT_HEAD     /* "Linear" is no target for it */
};

/* The format of the module whose names are name[0..n): aliases of one another.  named: set to
 * whether quantized_layers has one of them. */
struct linear_format quant_format(const struct quant_rules *r, const char *const *name, size_t n,
				  enum quant_module what, bool *named);

#endif
