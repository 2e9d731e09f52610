// The DSP as a program under qemu-hexagon: requests come from file 0, replies go to file 1, file 3
// is the shared memory. It ends when the host closes the requests.

#include "kernels/hexagon/dsp/hvx.h"
#include "kernels/hexagon/dsp/machine.h"

namespace runnel::hexagon {

// There is no engine in the emulator.
void BeginCopy(void* vtcm, const void* from, uint32_t bytes) { memcpy(vtcm, from, bytes); }
void AwaitCopies() {}

namespace {

constexpr int kRequests = 0, kReplies = 1, kShared = 3;
// System calls of Linux.
constexpr int32_t kRead = 63, kWrite = 64, kExitGroup = 94, kMmap2 = 222;
constexpr int32_t kInterrupted = -4;

int32_t SystemCall(int32_t number, int32_t a0, int32_t a1 = 0, int32_t a2 = 0, int32_t a3 = 0,
                   int32_t a4 = 0, int32_t a5 = 0) {
  register int32_t r0 __asm__("r0") = a0;
  register int32_t r1 __asm__("r1") = a1;
  register int32_t r2 __asm__("r2") = a2;
  register int32_t r3 __asm__("r3") = a3;
  register int32_t r4 __asm__("r4") = a4;
  register int32_t r5 __asm__("r5") = a5;
  register int32_t r6 __asm__("r6") = number;
  __asm__ volatile("trap0(#1)"
                   : "+r"(r0)
                   : "r"(r1), "r"(r2), "r"(r3), "r"(r4), "r"(r5), "r"(r6)
                   : "memory");
  return r0;
}

[[noreturn]] void Exit(int32_t code) {
  for (;;) SystemCall(kExitGroup, code);
}

int32_t AddressOf(const void* at) { return static_cast<int32_t>(reinterpret_cast<uintptr_t>(at)); }

bool ReadAll(void* to, int32_t bytes) {
  auto* at = static_cast<uint8_t*>(to);
  while (bytes > 0) {
    const int32_t got = SystemCall(kRead, kRequests, AddressOf(at), bytes);
    if (got == kInterrupted) continue;
    if (got <= 0) return false;
    at += got;
    bytes -= got;
  }
  return true;
}

bool WriteAll(const void* from, int32_t bytes) {
  const auto* at = static_cast<const uint8_t*>(from);
  while (bytes > 0) {
    const int32_t put = SystemCall(kWrite, kReplies, AddressOf(at), bytes);
    if (put == kInterrupted) continue;
    if (put <= 0) return false;
    at += put;
    bytes -= put;
  }
  return true;
}

// Null: there is no memory. Of a file that is shared, or, for file -1, of the program's own.
uint8_t* Map(uint32_t bytes, int32_t file) {
  constexpr int32_t kReadWrite = 3, kMapShared = 1, kPrivateAnonymousNoReserve = 0x4022;
  const int32_t at = SystemCall(kMmap2, 0, static_cast<int32_t>(bytes), kReadWrite,
                                file >= 0 ? kMapShared : kPrivateAnonymousNoReserve, file, 0);
  // Errors are -4095..-1.
  return static_cast<uint32_t>(at) > 0xfffff000u
             ? nullptr
             : reinterpret_cast<uint8_t*>(static_cast<uintptr_t>(at));
}

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

DspStatus Open(Machine& machine, const DspRequest& request) {
  if (machine.shared != nullptr || request.protocol != kDspProtocol) return DspStatus::kBadRequest;
  machine.shared = Map(request.shared_bytes, kShared);
  machine.vtcm = Map(request.vtcm_bytes, -1);
  const uint32_t half = request.private_bytes / 2;
  uint8_t* own = Map(request.private_bytes, -1);
  if (machine.shared == nullptr || machine.vtcm == nullptr || own == nullptr) {
    return DspStatus::kNoMemory;
  }
  machine.shared_bytes = request.shared_bytes;
  machine.vtcm_bytes = request.vtcm_bytes;
  // Kernels also read a little before what they were given.
  machine.scratch.Set(own + kSlackBytes, half - kSlackBytes);
  machine.packed.Set(own + half, half);
  return DspStatus::kOk;
}

DspStatus RunOps(Machine& machine, const DspRequest& request, uint32_t& failed) {
  if (machine.shared == nullptr || request.op_count > kMaxOps) return DspStatus::kBadRequest;
  auto& desk = *reinterpret_cast<DspDesk*>(machine.shared);
  for (uint32_t i = 0; i < request.op_count; ++i) {
    DspOp& op = desk.ops[i];
    failed = i;
    const Kernel kernel = FindKernel(op.code);
    if (kernel == nullptr) return DspStatus::kUnknownCode;
    machine.scratch.Reset();
    const DspCounts before = ReadCounts();
    const DspStatus status = kernel(machine, op);
    const DspCounts after = ReadCounts();
    if (status != DspStatus::kOk) return status;
    op.counts.packets = after.packets - before.packets;
    op.counts.instructions = after.instructions - before.instructions;
    op.counts.vector_instructions = after.vector_instructions - before.vector_instructions;
    *const_cast<volatile uint32_t*>(&desk.ops_done) = i + 1;
  }
  return DspStatus::kOk;
}

}  // namespace

extern "C" [[noreturn]] void Serve() {
  Machine machine;
  DspRequest request;
  while (ReadAll(&request, sizeof(request))) {
    DspReply reply;
    reply.sequence = request.sequence;
    if (request.magic != kDspMagic) {
      reply.status = DspStatus::kBadRequest;
    } else if (request.verb == DspVerb::kOpen) {
      reply.status = Open(machine, request);
    } else {
      reply.status = RunOps(machine, request, reply.failed_op);
    }
    if (!WriteAll(&reply, sizeof(reply))) break;
  }
  Exit(0);
}

// The stack pointer is the kernel's; vectors on it need 128 bytes of alignment.
extern "C" __attribute__((naked, noreturn)) void _start() {
  __asm__ volatile("{ r29 = and(r29, #-128) }\n{ call Serve }\n");
}

}  // namespace runnel::hexagon
