/* SPDX-License-Identifier: Apache-2.0 */
/* Copies between pages of the KV cache: the first tokens of a page that requests share go on in a
 * page of one request.  The reference and the kernel write the same bytes. */
#ifndef AR_SHARE_H
#define AR_SHARE_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Pages of page bytes, one after the other: a plane of a layer's cache, or the state of a selector.
 * A page has a part for each head, whose tokens have row bytes.  row 0: a page is copied whole. */
struct share_plane {
	char *mem;
	size_t page, row;
	int heads;
	int group; /* of the layer: copies of other groups leave it alone */
};

/* Tokens [0, n_tok) of page `from` go to page `to`. */
struct share_copy {
	int32_t group, from, to, n_tok;
};

/* Copy in n_plane planes.  No page is copied from that is copied to.  share_pages: on the device,
 * in one launch; the arrays lie there too.  widest: largest page of a plane, in bytes. */
void share_pages_ref(const struct share_plane *plane, int n_plane, const struct share_copy *copy,
		     int n_copy);
enum ar_status share_pages(const struct share_plane *plane, int n_plane, size_t widest,
			   const struct share_copy *copy, int n_copy, void *stream,
			   struct ar_err *err);

#ifdef __cplusplus
}
#endif
#endif
