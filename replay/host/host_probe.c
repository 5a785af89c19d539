/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "replay/host/host_probe.h"

enum ar_status host_probe(struct probe *p, int device, struct ar_err *err)
{
	enum ar_status st;

	*p = (struct probe){ 0 };
	st = probe_loop(p, err);
	if (st || device == HOST_PROBE_NO_GPU)
		return st;
#if HAVE_CUDA
	return host_probe_launches(p, device, err);
#else
	return ar_fail(err, AR_NODEV, "GPU %d: this program was built without CUDA", device);
#endif
}
