/*
 * Copyright (c) 2026, gb10.cluster contributors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * SIMULATED libraries of NVIDIA's driver for the lab's containers: libcuda and libnvidia-ml in one. DRIVER and CUDA come from the compiler's
 * command line. They talk to no driver. A container in which the file LOST lies has lost its GPU, as one whose cgroup systemd made again does:
 * the answers are those that CUDA and NVML give then.
 */
#include <string.h>
#include <unistd.h>

#define LOST "/var/lib/gb10-lab/gpu-lost"
#define UNKNOWN_ERROR 999
#define NOT_SUPPORTED 3
#define NO_DEVICE 100

static int lost(void) { return access(LOST, F_OK) == 0; }

int cuInit(unsigned int flags) { return lost() ? NO_DEVICE : 0; }
int cuDriverGetVersion(int *version) { return *version = CUDA, 0; }
int cuGetErrorString(int code, const char **text) { return *text = code == NO_DEVICE ? "no CUDA-capable device is detected" : "no error", 0; }

int nvmlInit_v2(void) { return lost() ? UNKNOWN_ERROR : 0; }
int nvmlInitWithFlags(unsigned int flags) { return nvmlInit_v2(); }
int nvmlShutdown(void) { return 0; }
const char *nvmlErrorString(int code) { return code == UNKNOWN_ERROR ? "Unknown Error" : code == NOT_SUPPORTED ? "Not Supported" : "Success"; }
int nvmlSystemGetDriverVersion(char *text, unsigned int length) { return strncpy(text, DRIVER, length), 0; }
int nvmlDeviceGetCount_v2(unsigned int *count) { return *count = 1, 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned int index, void **device) { return *device = (void *)LOST, 0; }
int nvmlDeviceGetName(void *device, char *text, unsigned int length) { return strncpy(text, "NVIDIA GB10", length), 0; }
/* As a GB10 answers: its memory is the node's. */
int nvmlDeviceGetMemoryInfo(void *device, void *memory) { return NOT_SUPPORTED; }
