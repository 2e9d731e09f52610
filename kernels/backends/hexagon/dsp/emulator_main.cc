// The DSP as a program under qemu-hexagon: requests come from file 0, replies go to file 1, file 3
// is the shared memory. It ends when the host closes the requests.

#include "kernels/backends/hexagon/dsp/emulator_threads.h"
#include "kernels/backends/hexagon/dsp/machine.h"
#include "kernels/backends/hexagon/dsp/platform.h"
#include "kernels/backends/hexagon/dsp/server.h"
#include "kernels/backends/hexagon/emulator_places.h"

namespace runnel::hexagon {

namespace {

constexpr int kRequests = 0, kReplies = 1, kShared = 3;
constexpr uint32_t kStackBytes = 64 << 10;

// Counters of the emulator alone, of the calling thread.
DspCounts ReadThreadCounts() {
  register uint32_t value __asm__("r0");
  DspCounts counts;
  __asm__ volatile(".word 0x6a14c000" : "=r"(value));
  counts.packets = counts.longest = value;
  __asm__ volatile(".word 0x6a15c000" : "=r"(value));
  counts.instructions = value;
  __asm__ volatile(".word 0x6a16c000" : "=r"(value));
  counts.vector_instructions = value;
  return counts;
}

// All modulo 2^32.
void Add(DspCounts& to, const DspCounts& more, uint32_t sign) {
  to.packets += sign * more.packets;
  to.instructions += sign * more.instructions;
  to.vector_instructions += sign * more.vector_instructions;
  to.longest += sign * more.longest;
}

struct Part {
  EmulatedThread thread;
  uint32_t number = 0;
  void (*body)(void*, uint32_t) = nullptr;
  void* context = nullptr;
  DspCounts counts;

  void Run() {
    const DspCounts before = ReadThreadCounts();
    body(context, number);
    counts = ReadThreadCounts();
    Add(counts, before, ~uint32_t{0});
  }
};

// What the main thread's counters lack: the other threads' counts, less its waiting.
DspCounts unseen;

}  // namespace

void RunOnThreads(uint32_t count, void (*body)(void*, uint32_t), void* context) {
  alignas(128) static uint8_t stacks[kMaxThreads][kStackBytes];
  Part parts[kMaxThreads];
  const DspCounts begin = ReadThreadCounts();
  for (uint32_t i = 0; i < count; ++i) {
    parts[i].number = i;
    parts[i].body = body;
    parts[i].context = context;
    // The last one is this thread's.
    const auto run = [](void* part) { static_cast<Part*>(part)->Run(); };
    if (i + 1 == count || !StartThread(parts[i].thread, stacks[i], kStackBytes, run, &parts[i]))
      parts[i].Run();
  }
  for (uint32_t i = 0; i < count; ++i) JoinThread(parts[i].thread);
  DspCounts all;
  uint32_t longest = 0;
  for (uint32_t i = 0; i < count; ++i) {
    Add(all, parts[i].counts, 1);
    if (parts[i].counts.packets > longest) longest = parts[i].counts.packets;
  }
  all.longest = longest;
  // From begin on the counters shall have risen by these.
  DspCounts seen = ReadThreadCounts();
  Add(seen, begin, ~uint32_t{0});
  Add(unseen, all, 1);
  Add(unseen, seen, ~uint32_t{0});
}

uint8_t* MapShared(const DspRequest& open) { return Map(open.shared_bytes, kShared); }
uint8_t* MapPrivate(const DspRequest& open, uint8_t*) { return Map(open.private_bytes, -1); }

// No other process wants the VTCM.
Vtcm HoldVtcm(uint32_t most, uint32_t) {
  static uint8_t* vtcm = nullptr;
  if (vtcm == nullptr) vtcm = Map(most, -1, kReadWrite, kEmulatedVtcm);
  return {vtcm, most};
}
bool IsVtcmAsked() { return false; }
void RestVtcm() {}
void DropVtcm() {}
void VotePower(bool) {}
void ShowProgress(volatile uint32_t* word, uint32_t value) { *word = value; }

DspCounts ReadCounts() {
  DspCounts counts = ReadThreadCounts();
  Add(counts, unseen, 1);
  return counts;
}

void ShowCounts(DspCounts& shown, const DspCounts& before) {
  DspCounts after = ReadCounts();
  Add(after, before, ~uint32_t{0});
  shown = after;
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
