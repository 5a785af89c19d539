/* SPDX-License-Identifier: Apache-2.0 */
/* The writers, in the order of --format. */
WRITER(table)
WRITER(csv)
WRITER(json)
WRITER(markdown)
