/* SPDX-License-Identifier: Apache-2.0 */
/* The subcommands, in the order of --help. */
CMD(run)
CMD(search)
CMD(import_engine)
CMD(report)
CMD(sql)
CMD(trace)
CMD(capture)
CMD(methods)
CMD(select)
CMD(calibrate)
CMD(bench)
