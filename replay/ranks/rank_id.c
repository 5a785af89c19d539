/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "replay/ranks/rank_id.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/number.h"

enum { PAGE_NAP_NS = 1000000, FILE_NAP_NS = 50000000 };

struct id_file {
	char magic[8];
	uint32_t version, ranks;
	char key[32];
	struct nccl_id id;
};
_Static_assert(sizeof(struct id_file) == 176, "the file has 176 bytes");

static struct id_file new_file(const struct world_join *j, const char *key)
{
	struct id_file f = {
		.magic = "ATRPNCCL", .version = 1, .ranks = (uint32_t)j->size, .id = j->id
	};

	memcpy(f.key, key, strnlen(key, sizeof f.key));
	return f;
}

static enum ar_status not_ours(const char *path, struct ar_err *err)
{
	return ar_fail(err, AR_DATA, "%s: the id of other ranks, or of an earlier run; remove it",
		       path);
}

static enum ar_status cannot_write(const char *path, struct ar_err *err)
{
	return ar_fail(err, AR_IO, "%s: cannot write the id of the ranks: %s", path,
		       strerror(errno));
}

/* Write it under another name first, so that nobody reads half of it. */
static enum ar_status write_as(const char *tmp, const char *path, const struct id_file *f,
			       struct ar_err *err)
{
	int fd = open(tmp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	bool done = fd >= 0 && write(fd, f, sizeof *f) == (ssize_t)sizeof *f && !fsync(fd);

	if (fd >= 0)
		done = !close(fd) && done;
	if (done && !link(tmp, path))
		return AR_OK;
	return done && errno == EEXIST ? not_ours(path, err) : cannot_write(path, err);
}

static enum ar_status write_file(const struct world_join *j, struct ar_err *err)
{
	const struct rank_meeting *m = j->meeting;
	const struct id_file f = new_file(j, m->key);
	char *tmp = NULL;
	enum ar_status st;

	if (asprintf(&tmp, "%s.tmp.%d", m->file, (int)getpid()) < 0)
		return ar_nomem(err);
	st = write_as(tmp, m->file, &f, err);
	unlink(tmp);
	free(tmp);
	return st;
}

/* A network file system that has seen no such file may keep saying so until its folder is read. */
static void read_folder(const char *path)
{
	const char *slash = strrchr(path, '/');
	char *folder = slash ? strndup(path, (size_t)(slash - path) + 1) : strdup(".");
	DIR *d = folder ? opendir(folder) : NULL;

	while (d && readdir(d))
		;
	if (d)
		closedir(d);
	free(folder);
}

/* Try once.  *got: the id is there. */
static enum ar_status try_file(struct world_join *j, bool *got, struct ar_err *err)
{
	const struct rank_meeting *m = j->meeting;
	struct id_file want, f;
	ssize_t n;
	int fd;

	read_folder(m->file);
	fd = open(m->file, O_RDONLY | O_CLOEXEC);
	if (fd < 0 && errno == ENOENT)
		return AR_OK;
	n = fd < 0 ? -1 : read(fd, &f, sizeof f);
	if (n < 0)
		ar_fail(err, AR_IO, "%s: %s", m->file, strerror(errno));
	if (fd >= 0)
		close(fd);
	if (n < 0)
		return AR_IO;
	j->id = f.id;
	want = new_file(j, m->key);
	*got = n == (ssize_t)sizeof f && !memcmp(&f, &want, sizeof f);
	return *got ? AR_OK : not_ours(m->file, err);
}

static enum ar_status try_page(struct world_join *j, bool *got, struct ar_err *err)
{
	if (atomic_load(&j->page->stop))
		return ar_fail(err, AR_IO, "rank %d of %d: another rank has failed", j->rank,
			       j->size);
	*got = atomic_load(&j->page->has_id);
	j->id = j->page->id;
	return AR_OK;
}

static enum ar_status wait_for_id(struct world_join *j, struct ar_err *err)
{
	const struct timespec nap = { 0, j->meeting ? FILE_NAP_NS : PAGE_NAP_NS };
	char limit[32];
	bool got = false;

	for (int64_t waited = 0; waited <= j->join_ns; waited += nap.tv_nsec) {
		enum ar_status st = j->meeting ? try_file(j, &got, err) : try_page(j, &got, err);

		if (st || got)
			return st;
		if (ar_interrupted())
			return ar_fail(err, AR_INTERRUPTED, "interrupted while ranks join");
		nanosleep(&nap, NULL);
	}
	return ar_fail(err, AR_NODEV, "rank %d of %d: no answer from rank 0 within %s", j->rank,
		       j->size, num_time_str(limit, sizeof limit, (double)j->join_ns));
}

static enum ar_status give_id(struct world_join *j, struct ar_err *err)
{
	if (j->meeting)
		return j->meeting->file ? write_file(j, err) : AR_OK;
	j->page->id = j->id;
	atomic_store(&j->page->has_id, 1);
	return AR_OK;
}

static enum ar_status get_id(struct world_join *j, struct ar_err *err)
{
	const struct rank_meeting *m = j->meeting;
	const struct nccl *nccl;
	enum ar_status st = nccl_load(&nccl, err);

	if (st)
		return st;
	if (j->rank && (!m || m->file))
		return wait_for_id(j, err);
	if (nccl->GetUniqueId(&j->id))
		return ar_fail(err, AR_NODEV, "NCCL cannot make an id: %s",
			       nccl->GetLastError(NULL));
	return give_id(j, err);
}

enum ar_status rank_join(struct world **out, const struct world_join *join, struct ar_err *err)
{
	struct world_join mine = *join;
	enum ar_status st = get_id(&mine, err);

	if (st)
		return st;
	st = world_open(out, &mine, err);
	if (!mine.rank && mine.meeting && mine.meeting->file)
		unlink(mine.meeting->file);
	return st;
}
