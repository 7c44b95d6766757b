/* NVML as far as ampdoctor asks it, for machines without a GPU. The environment says what there is and what fails:
 *
 *   STUB_GPUS       GPU-aaaa|Name|MIG-bbbb/1/0,GPU-cccc|Name   GPUs by commas; uuid, name, then its MIG instances
 *   STUB_FAIL       nvmlDeviceGetPowerUsage=3,...              functions that return an error code
 *   STUB_HANG       nvmlDeviceGetMemoryInfo                    a function that never returns
 *   STUB_USED       1000,2000,3000                             bytes in use, look by look; the last one stays
 *   STUB_PROCESSES  self=4096,7=100                            processes that compute, with their memory
 *   STUB_THROTTLE   36                                         reasons for low clocks, as bits
 *   STUB_LOST       GPU-aaaa                                   a GPU of which nothing is known but its uuid and name
 *
 * Compiled with OLD_DRIVER it lacks what drivers before 535 lack.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, GPU_IS_LOST = 15 };
enum { ROOM = 16 };

typedef struct device {
    char uuid[96], name[96];
    int mig, looks;
    unsigned gpu_instance, compute_instance, instances;
    struct device *of[ROOM];
} device;

static device *gpus[ROOM];
static unsigned count;

static const char *told(const char *name) {
    const char *value = getenv(name);
    return value ? value : "";
}

static int trouble(const char *function) {
    char text[1024], *rest = text, *entry;
    if (!strcmp(told("STUB_HANG"), function)) for (;;) pause();
    snprintf(text, sizeof text, "%s", told("STUB_FAIL"));
    while ((entry = strsep(&rest, ","))) {
        char *code = strchr(entry, '=');
        if (code && (*code = 0, !strcmp(entry, function))) return atoi(code + 1);
    }
    return SUCCESS;
}

static int lost(const device *d) { return !d->mig && !strcmp(told("STUB_LOST"), d->uuid); }

#define ASKED(function) do { int code = trouble(#function); if (code) return code; } while (0)
#define ASKED_OF(d, function) do { ASKED(function); if (lost(d)) return GPU_IS_LOST; } while (0)
#define ASKED_OF_GPU(d, function) do { ASKED_OF(d, function); if ((d)->mig) return INVALID_ARGUMENT; } while (0)

static device *read_device(char *text) {
    char *field;
    device *d = calloc(1, sizeof *d);
    snprintf(d->uuid, sizeof d->uuid, "%s", strsep(&text, "|"));
    snprintf(d->name, sizeof d->name, "%s", strsep(&text, "|"));
    while ((field = strsep(&text, "|"))) {
        device *instance = calloc(1, sizeof *instance);
        instance->mig = 1;
        snprintf(instance->name, sizeof instance->name, "%.80s MIG", d->name);
        sscanf(field, "%95[^/]/%u/%u", instance->uuid, &instance->gpu_instance, &instance->compute_instance);
        d->of[d->instances++] = instance;
    }
    return d;
}

int nvmlInitWithFlags(unsigned flags) {
    char text[2048], *rest = text, *entry;
    (void)flags;
    ASKED(nvmlInitWithFlags);
    count = 0;
    snprintf(text, sizeof text, "%s", told("STUB_GPUS"));
    while ((entry = strsep(&rest, ","))) if (*entry) gpus[count++] = read_device(entry);
    return SUCCESS;
}

int nvmlShutdown(void) { return trouble("nvmlShutdown"); }

const char *nvmlErrorString(int code) {
    static char text[32];
    snprintf(text, sizeof text, "stub error %d", code);
    return text;
}

int nvmlDeviceGetCount_v2(unsigned *n) { ASKED(nvmlDeviceGetCount_v2); *n = count; return SUCCESS; }

int nvmlDeviceGetHandleByIndex_v2(unsigned index, device **d) {
    ASKED(nvmlDeviceGetHandleByIndex_v2);
    if (index >= count) return INVALID_ARGUMENT;
    *d = gpus[index];
    return SUCCESS;
}

static int text_of(const char *value, char *out, unsigned size) { snprintf(out, size, "%s", value); return SUCCESS; }

int nvmlDeviceGetUUID(device *d, char *out, unsigned size) {
    ASKED(nvmlDeviceGetUUID);
    return text_of(d->uuid, out, size);
}

int nvmlDeviceGetName(device *d, char *out, unsigned size) {
    ASKED(nvmlDeviceGetName);
    return text_of(d->name, out, size);
}

int nvmlDeviceGetMigMode(device *d, unsigned *current, unsigned *pending) {
    ASKED(nvmlDeviceGetMigMode);
    *current = *pending = d->instances > 0;
    return SUCCESS;
}

/* Room for one instance more than there are, as on a GPU that is not wholly divided. */
int nvmlDeviceGetMaxMigDeviceCount(device *d, unsigned *n) {
    ASKED(nvmlDeviceGetMaxMigDeviceCount);
    *n = d->instances + 1;
    return SUCCESS;
}

int nvmlDeviceGetMigDeviceHandleByIndex(device *d, unsigned index, device **instance) {
    ASKED(nvmlDeviceGetMigDeviceHandleByIndex);
    if (index >= d->instances) return NOT_FOUND;
    *instance = d->of[index];
    return SUCCESS;
}

int nvmlDeviceGetGpuInstanceId(device *d, unsigned *id) {
    ASKED(nvmlDeviceGetGpuInstanceId);
    *id = d->gpu_instance;
    return SUCCESS;
}

int nvmlDeviceGetComputeInstanceId(device *d, unsigned *id) {
    ASKED(nvmlDeviceGetComputeInstanceId);
    *id = d->compute_instance;
    return SUCCESS;
}

int nvmlDeviceGetMemoryInfo(device *d, unsigned long long *memory) { /* total, free, used */
    char text[512], *rest = text, *entry, *next;
    int left = d->looks++;
    ASKED_OF(d, nvmlDeviceGetMemoryInfo);
    snprintf(text, sizeof text, "%s", *told("STUB_USED") ? told("STUB_USED") : "1024");
    entry = strsep(&rest, ",");
    while (left-- > 0 && (next = strsep(&rest, ","))) entry = next;
    memory[0] = (d->mig ? 10ULL : 80ULL) << 30;
    memory[2] = strtoull(entry, NULL, 10);
    memory[1] = memory[0] - memory[2];
    return SUCCESS;
}

struct process { unsigned pid; unsigned long long used; unsigned gpu_instance, compute_instance; };

int nvmlDeviceGetComputeRunningProcesses_v3(device *d, unsigned *n, struct process *out) {
    char text[512], *rest = text, *entry;
    unsigned found = 0, room = *n;
    ASKED_OF(d, nvmlDeviceGetComputeRunningProcesses);
    snprintf(text, sizeof text, "%s", told("STUB_PROCESSES"));
    while ((entry = strsep(&rest, ","))) {
        char *used = strchr(entry, '=');
        if (!used) continue;
        if (found < room && out) {
            *used = 0;
            out[found].pid = strcmp(entry, "self") ? (unsigned)atoi(entry) : (unsigned)getpid();
            out[found].used = strtoull(used + 1, NULL, 10);
        }
        found++;
    }
    *n = found;
    return found > room ? INSUFFICIENT_SIZE : SUCCESS;
}

int nvmlDeviceGetUtilizationRates(device *d, unsigned *rates) { /* of kernels, of memory */
    ASKED_OF(d, nvmlDeviceGetUtilizationRates);
    if (d->mig) return NOT_SUPPORTED;
    rates[0] = 75;
    rates[1] = 50;
    return SUCCESS;
}

#define NUMBER(function, value)                                                                                        \
    int function(device *d, unsigned *out) { ASKED_OF_GPU(d, function); *out = (value); return SUCCESS; }
#define NUMBER_OF(function, value)                                                                                     \
    int function(device *d, int which, unsigned *out) {                                                                \
        (void)which; ASKED_OF_GPU(d, function); *out = (value); return SUCCESS;                                        \
    }

NUMBER(nvmlDeviceGetPowerUsage, 250500)
NUMBER(nvmlDeviceGetEnforcedPowerLimit, 400000)
NUMBER(nvmlDeviceGetPowerManagementDefaultLimit, 500000)
NUMBER_OF(nvmlDeviceGetTemperature, 65)
NUMBER_OF(nvmlDeviceGetClockInfo, which == 1 ? 1200 : 1)
NUMBER_OF(nvmlDeviceGetMaxClockInfo, which == 1 ? 1410 : 1)

static int reasons(unsigned long long *bits) { *bits = strtoull(told("STUB_THROTTLE"), NULL, 10); return SUCCESS; }

#ifdef OLD_DRIVER
int nvmlDeviceGetCurrentClocksThrottleReasons(device *d, unsigned long long *bits) {
    ASKED_OF_GPU(d, nvmlDeviceGetCurrentClocksThrottleReasons);
    return reasons(bits);
}
#else
int nvmlDeviceGetCurrentClocksEventReasons(device *d, unsigned long long *bits) {
    ASKED_OF_GPU(d, nvmlDeviceGetCurrentClocksEventReasons);
    return reasons(bits);
}
#endif
