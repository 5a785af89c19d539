/* The writers, in the order of --format. */
WRITER(table)
WRITER(csv)
WRITER(json)
