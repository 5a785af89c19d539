/* The subcommands, in the order of --help. */
CMD(run)
CMD(trace)
CMD(methods)
CMD(capture)
CMD(report)
CMD(sql)
