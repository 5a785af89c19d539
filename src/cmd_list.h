/* SPDX-License-Identifier: Apache-2.0 */
/* The subcommands, in the order of --help. */
CMD(run)
CMD(import_engine)
CMD(merge)
CMD(report)
CMD(diff)
CMD(sql)
CMD(trace)
CMD(capture)
CMD(methods)
CMD(select)
CMD(calibrate)
CMD(bench)
