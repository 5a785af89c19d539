/* SPDX-License-Identifier: Apache-2.0 */
/* The exporters, one line each: the option of report that names the file, and its help. */
EXPORT(html, "write a page with charts to FILE, in place of the tables")
EXPORT(perfetto,
       "write a time line for ui.perfetto.dev to FILE, in place of the tables; .gz and .zst "
       "compress it")
EXPORT(nsys,
       "write the kept kernels to FILE, an SQLite database in the layout of Nsight Systems, in "
       "place of the tables")
