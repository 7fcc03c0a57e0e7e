// Answers, for each line of standard input, what NVIDIA's cuda_occupancy.h says of a launch:
//   major minor threads_sm registers_block registers_sm shared_sm shared_block_optin reserved   threads registers static dynamic
// with a line of error, blocks, limiting factors, and the blocks that warps, blocks, registers, shared memory allow.
#include <climits>
#include <cstdio>
#include <cstring>

#include "cuda_occupancy.h"

int main() {
    cudaOccDeviceProp gpu;
    long shared_sm, optin, reserved, fixed, dynamic;
    int threads, registers;
    while (std::scanf("%d %d %d %d %d %ld %ld %ld %d %d %ld %ld", &gpu.computeMajor, &gpu.computeMinor,
                      &gpu.maxThreadsPerMultiprocessor, &gpu.regsPerBlock, &gpu.regsPerMultiprocessor, &shared_sm,
                      &optin, &reserved, &threads, &registers, &fixed, &dynamic) == 12) {
        gpu.maxThreadsPerBlock = 1024;
        gpu.warpSize = 32;
        gpu.numSms = 1;
        gpu.sharedMemPerBlock = 49152;
        gpu.sharedMemPerMultiprocessor = shared_sm;
        gpu.sharedMemPerBlockOptin = optin;
        gpu.reservedSharedMemPerBlock = reserved;

        cudaOccFuncAttributes kernel;
        kernel.maxThreadsPerBlock = INT_MAX;
        kernel.numRegs = registers;
        kernel.sharedSizeBytes = fixed;
        kernel.partitionedGCConfig = PARTITIONED_GC_OFF;
        kernel.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN;
        kernel.maxDynamicSharedSizeBytes = optin;
        kernel.numBlockBarriers = 1;

        cudaOccDeviceState state;
        cudaOccResult found;
        std::memset(&found, 0, sizeof found);
        int error = cudaOccMaxActiveBlocksPerMultiprocessor(&found, &gpu, &kernel, &state, threads, dynamic);
        std::printf("%d %d %u %d %d %d %d\n", error, found.activeBlocksPerMultiprocessor, found.limitingFactors,
                    found.blockLimitWarps, found.blockLimitBlocks, found.blockLimitRegs, found.blockLimitSharedMem);
    }
    return 0;
}
