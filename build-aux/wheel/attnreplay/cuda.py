# SPDX-License-Identifier: Apache-2.0
MAJOR = ""      # of the CUDA that the program was built with, which 'make wheel' puts here
