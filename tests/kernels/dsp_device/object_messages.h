#pragma once

// What the double of the vendor's library and the program that holds the DSP's shared object say to
// each other. Both compilers read this header.

#include <stdint.h>

namespace runnel::hexagon {

inline constexpr uint32_t kMaxPayload = 256;
inline constexpr uint32_t kMaxPacketBuffers = 64;

enum class ObjectMessage : uint32_t { kInvoke = 1, kPacket = 2 };

struct ToObject {
  ObjectMessage kind = ObjectMessage::kInvoke;
  uint32_t scalars = 0;       // kInvoke
  uint32_t out_bytes = 0;     // kInvoke: of its first buffer out
  uint32_t shared_bytes = 0;  // of the file that is mapped
  uint32_t refuse_vtcm = 0;
  // Whoever holds it is asked for it in the middle of a list, when a thread is made; 2: and does not
  // get it again; 3: it is asked before it knows that it has it.
  uint32_t ask_vtcm = 0;
  // Another program of equal priority takes all that nobody holds before each message, for a list
  // that is over when somebody waits.
  uint32_t share_vtcm = 0;
  uint32_t mute_manager = 0;  // the manager of compute resources lends nothing
  uint32_t most_vtcm = 0;     // bytes; requests over it are refused
  uint32_t bytes = 0;
  uint8_t payload[kMaxPayload] = {};
};

struct PacketBuffer {
  uint32_t file = 0;
  uint32_t bytes = 0;
  uint32_t offset = 0;
  uint32_t flags = 0;
  uint64_t address = 0;
};

struct FromObject {
  ObjectMessage kind = ObjectMessage::kInvoke;
  int32_t result = 0;  // kInvoke
  // What the object holds of the DSP now.
  uint32_t vtcm_bytes = 0;
  // How often it ever got VTCM, and gave it back because somebody asked.
  uint32_t vtcm_taken = 0, vtcm_returned = 0;
  // How often the object waited for it, asked the manager for a resource, and lost its turn to the
  // other program.
  uint32_t vtcm_waits = 0, vtcm_asks = 0, vtcm_shared = 0;
  uint32_t powered = 0;
  uint32_t mapped = 0;
  uint32_t threads = 0;  // that it ever made
  uint32_t buffer_count = 0;
  PacketBuffer buffers[kMaxPacketBuffers] = {};
  uint32_t bytes = 0;
  uint8_t payload[kMaxPayload] = {};
};

}  // namespace runnel::hexagon
