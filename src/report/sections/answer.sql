-- SPDX-License-Identifier: Apache-2.0
SELECT text AS answer
FROM answer
ORDER BY place
