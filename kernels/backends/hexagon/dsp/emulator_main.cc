// The DSP as a program under qemu-hexagon: requests come from file 0, replies go to file 1, file 3
// is the shared memory. It ends when the host closes the requests.

#include "kernels/backends/hexagon/dsp/emulator_calls.h"
#include "kernels/backends/hexagon/dsp/machine.h"
#include "kernels/backends/hexagon/dsp/platform.h"
#include "kernels/backends/hexagon/dsp/server.h"

namespace runnel::hexagon {

// There is no engine in the emulator.
void BeginCopy(void* vtcm, const void* from, uint32_t bytes) { memcpy(vtcm, from, bytes); }
void AwaitCopies() {}

namespace {

constexpr int kRequests = 0, kReplies = 1, kShared = 3;

}  // namespace

uint8_t* MapShared(const DspRequest& open) { return Map(open.shared_bytes, kShared); }
uint8_t* MapPrivate(const DspRequest& open, uint8_t*) { return Map(open.private_bytes, -1); }

// No other process wants the VTCM.
uint8_t* AcquireVtcm(uint32_t bytes, bool) {
  static uint8_t* vtcm = nullptr;
  if (vtcm == nullptr) vtcm = Map(bytes, -1);
  return vtcm;
}
void ReleaseVtcm(uint8_t*) {}
void VotePower(bool) {}
void ShowProgress(volatile uint32_t* word, uint32_t value) { *word = value; }

// Counters of the emulator alone: packets, instructions, vector instructions.
DspCounts ReadCounts() {
  register uint32_t value __asm__("r0");
  DspCounts counts;
  __asm__ volatile(".word 0x6a14c000" : "=r"(value));
  counts.packets = value;
  __asm__ volatile(".word 0x6a15c000" : "=r"(value));
  counts.instructions = value;
  __asm__ volatile(".word 0x6a16c000" : "=r"(value));
  counts.vector_instructions = value;
  return counts;
}

void ShowCounts(DspCounts& shown, const DspCounts& before) {
  const DspCounts after = ReadCounts();
  shown.packets = after.packets - before.packets;
  shown.instructions = after.instructions - before.instructions;
  shown.vector_instructions = after.vector_instructions - before.vector_instructions;
}

extern "C" [[noreturn]] void Serve() {
  static Server server;
  DspRequest request;
  while (ReadAll(kRequests, &request, sizeof(request))) {
    const DspReply reply = server.Answer(request);
    if (!WriteAll(kReplies, &reply, sizeof(reply))) break;
  }
  Exit(0);
}

// The stack pointer is the kernel's; vectors on it need 128 bytes of alignment.
extern "C" __attribute__((naked, noreturn)) void _start() {
  __asm__ volatile("{ r29 = and(r29, #-128) }\n{ call Serve }\n");
}

}  // namespace runnel::hexagon
