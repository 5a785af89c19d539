/* The subcommands, in the order of --help. */
CMD(run)
CMD(report)
CMD(sql)
CMD(trace)
CMD(capture)
CMD(methods)
CMD(calibrate)
CMD(bench)
