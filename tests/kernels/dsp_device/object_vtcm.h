#pragma once

// Tightly coupled memory in the double of a DSP's system (object_host.cc): by the older functions, and
// by the manager of compute resources. What was in it is spoilt when it is given back.

#include "kernels/backends/hexagon/dsp/emulator_calls.h"
#include "tests/kernels/dsp_device/object_messages.h"

namespace runnel::hexagon {

// What comes from the vendor's library, and what goes there.
inline ToObject message;
inline FromObject answer;

inline uint8_t* vtcm = nullptr;
inline uint32_t mapped_vtcm = 0;

inline void MapVtcm(unsigned bytes) {
  if (bytes <= mapped_vtcm) return;
  vtcm = Map(bytes, -1);
  mapped_vtcm = bytes;
}
// The program beside this one.
inline bool other_has_it = false;
inline bool other_keeps_it = false;  // from when it is given back
inline void LetOtherTake() {
  if (message.share_vtcm == 0 || answer.vtcm_bytes != 0 || other_has_it) return;
  other_has_it = true;
  ++answer.vtcm_shared;
}
inline void Wait(unsigned timeout_us) {
  if (timeout_us == 0) return;
  ++answer.vtcm_waits;
  other_has_it = false;
}

inline void* RequestVtcm(unsigned bytes, unsigned) {
  if (message.refuse_vtcm != 0 || bytes > message.most_vtcm || answer.vtcm_bytes != 0 ||
      other_has_it || other_keeps_it)
    return nullptr;
  MapVtcm(bytes);
  answer.vtcm_bytes = bytes;
  ++answer.vtcm_taken;
  return vtcm;
}
inline void* AwaitVtcm(unsigned bytes, unsigned single_page, unsigned timeout_us) {
  Wait(timeout_us);
  return RequestVtcm(bytes, single_page);
}
// What was there is the next one's.
inline void SpoilVtcm() {
  for (uint32_t i = 0; i < answer.vtcm_bytes / 4; ++i)
    reinterpret_cast<volatile uint32_t*>(vtcm)[i] = 0xa5a5a5a5u;
  answer.vtcm_bytes = 0;
}
inline int ReleaseVtcm(void* released) {
  if (released != vtcm) return 1;
  SpoilVtcm();
  return 0;
}

// The manager of compute resources: one resource, number 1.
struct ResourceAttributes {
  uint64_t words[20];
};
enum ResourceWord { kWanted, kLeast, kIsCached, kCallback, kContext };
struct Resource {
  uint32_t bytes = 0;  // 0: nobody has it
  int (*callback)(unsigned, void*) = nullptr;
  void* context = nullptr;
  bool asked = false;  // the callback was called
};
inline Resource resource;

inline int BeginAttributes(ResourceAttributes* attributes) {
  for (uint64_t& word : attributes->words) word = 0;
  return 0;
}
inline int SetVtcm(ResourceAttributes* attributes, unsigned bytes, unsigned, unsigned least) {
  attributes->words[kWanted] = bytes;
  attributes->words[kLeast] = least;
  return 0;
}
inline int SetCached(ResourceAttributes* attributes, uint8_t is_cached) {
  attributes->words[kIsCached] = is_cached;
  return 0;
}
inline int SetCallback(ResourceAttributes* attributes, int (*callback)(unsigned, void*),
                       void* with) {
  attributes->words[kCallback] = reinterpret_cast<uintptr_t>(callback);
  attributes->words[kContext] = reinterpret_cast<uintptr_t>(with);
  return 0;
}
inline unsigned AcquireResource(ResourceAttributes* attributes, unsigned timeout_us) {
  ++answer.vtcm_asks;
  Wait(timeout_us);
  const auto wanted = static_cast<uint32_t>(attributes->words[kWanted]);
  const uint32_t bytes = wanted < message.most_vtcm ? wanted : message.most_vtcm;
  if (message.refuse_vtcm != 0 || message.mute_manager != 0 || other_has_it ||
      bytes < attributes->words[kLeast] || resource.bytes != 0 || attributes->words[kIsCached] != 1)
    return 0;
  MapVtcm(bytes);
  resource = {};
  resource.bytes = bytes;
  resource.callback = reinterpret_cast<int (*)(unsigned, void*)>(
      static_cast<uintptr_t>(attributes->words[kCallback]));
  resource.context = reinterpret_cast<void*>(static_cast<uintptr_t>(attributes->words[kContext]));
  return 1;
}
inline int ReadVtcm(ResourceAttributes*, void** at, unsigned* bytes) {
  *at = vtcm;
  *bytes = resource.bytes;
  return 0;
}
inline void AskForVtcm();
inline int AcquireCached(unsigned number, unsigned timeout_us) {
  Wait(timeout_us);
  if (number != 1 || resource.bytes == 0 || answer.vtcm_bytes != 0) return 1;
  if (message.refuse_vtcm != 0 || other_has_it || other_keeps_it) return 1;
  answer.vtcm_bytes = resource.bytes;
  ++answer.vtcm_taken;
  if (message.ask_vtcm == 3) AskForVtcm();
  return 0;
}
inline int ReleaseCached(unsigned number) {
  if (number != 1 || answer.vtcm_bytes == 0) return 1;
  if (resource.asked) ++answer.vtcm_returned;
  resource.asked = false;
  SpoilVtcm();
  return 0;
}
inline int ReleaseResource(unsigned number) {
  if (number != 1 || resource.bytes == 0) return 1;
  SpoilVtcm();
  resource = {};
  return 0;
}
// Somebody of higher priority wants it.
inline void AskForVtcm() {
  if (resource.callback == nullptr || answer.vtcm_bytes == 0 || resource.asked) return;
  resource.asked = true;
  resource.callback(1, resource.context);
}

}  // namespace runnel::hexagon
