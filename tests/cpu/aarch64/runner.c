/* Runs inner loops of the kernels on the operands that arrive on stdin, and writes results to
 * stdout. The other end is tests/cpu/aarch64_kernels.py; all numbers are 64-bit and little-endian.
 *
 * At the start it writes the size of its list of kernels and the list. A request is the name,
 * padded to 64 bytes, then which loop, how many operands, rows and sizes of the two core
 * dimensions, then for each operand how many bytes, where its first entry is, its steps along the
 * rows and the core dimensions (-1: it lacks that), then all bytes. The answer is the bytes of all
 * operands, as the loop left them. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "builds/builds.h"

typedef struct {
    char name[64];
    int64_t loop, operands, dims[3];
} Request;

typedef struct {
    int64_t bytes, start, row_step, core_steps[2];
} Operand;

static void must(int condition, const char *message) {
    if (condition) return;
    fprintf(stderr, "%s\n", message);
    exit(1);
}

static const Kernel *named(const char *name) {
    const Kernel *kernel = builds()->kernels;
    while (kernel->name != NULL && strcmp(kernel->name, name)) kernel++;
    must(kernel->name != NULL, "no such kernel");
    return kernel;
}

static void write_names(void) {
    int64_t size = 0;
    for (const Kernel *k = builds()->kernels; k->name != NULL; k++)
        size += (int64_t)strlen(k->name) + 1;
    fwrite(&size, sizeof size, 1, stdout);
    for (const Kernel *k = builds()->kernels; k->name != NULL; k++) printf("%s ", k->name);
    fflush(stdout);
}

int main(void) {
    Request request;
    write_names();
    while (fread(&request, sizeof request, 1, stdin) == 1) {
        const Kernel *kernel = named(request.name);
        Operand operands[MAX_OPERANDS];
        char *memory[MAX_OPERANDS], *args[MAX_OPERANDS];
        ptrdiff_t steps[3 * MAX_OPERANDS];
        const ptrdiff_t dims[] = {request.dims[0], request.dims[1], request.dims[2]};
        const int count = (int)request.operands;
        must(count == kernel->inputs + kernel->outputs, "wrong number of operands");
        must(fread(operands, sizeof *operands, count, stdin) == (size_t)count, "cut short");
        for (int i = 0, core = count; i < count; i++) {
            memory[i] = malloc(operands[i].bytes + 1);
            must(memory[i] != NULL, "out of memory");
            must(fread(memory[i], 1, operands[i].bytes, stdin) == (size_t)operands[i].bytes,
                 "cut short");
            args[i] = memory[i] + operands[i].start;
            steps[i] = operands[i].row_step;
            for (int j = 0; j < 2; j++)
                if (operands[i].core_steps[j] != -1) steps[core++] = operands[i].core_steps[j];
        }
        kernel->loops[request.loop](args, dims, steps, kernel->data[request.loop]);
        for (int i = 0; i < count; i++) {
            fwrite(memory[i], 1, operands[i].bytes, stdout);
            free(memory[i]);
        }
        fflush(stdout);
    }
    return 0;
}
