#pragma once

// Differences between the emulator and a device. emulator_main.cc and device_main.cc implement
// them.

#include "kernels/backends/hexagon/op_list.h"

namespace runnel::hexagon {

// The memory that the host shares, and the program's own; null: refused.
uint8_t* MapShared(const DspRequest& open);
uint8_t* MapPrivate(const DspRequest& open, uint8_t* shared);
// The tightly coupled memory. It is others' between two lists; its place is kept for a session.
struct Vtcm {
  uint8_t* base = nullptr;  // null: others have it, and had it for a while
  uint32_t bytes = 0;
};
// For a list or the rest of one: `most` bytes, or what others leave, `least` or more. What was in it
// before is gone.
Vtcm HoldVtcm(uint32_t most, uint32_t least);
// Others asked for what is held. They wait for RestVtcm.
bool IsVtcmAsked();
// Gives it back, up to HoldVtcm.
void RestVtcm();
// A session closes, and holds none.
void DropVtcm();
// Asks for clocks and power of the vectors while a session is open.
void VotePower(bool up);
// Calls body(context, part) for the parts 0..count - 1, each on a stack of its own, and returns when
// all are done; on a processor that gives no threads, one after the other. count: 1..kMaxThreads.
void RunOnThreads(uint32_t count, void (*body)(void* context, uint32_t part), void* context);
// The host polls this word.
void ShowProgress(volatile uint32_t* word, uint32_t value);
// Zeros where the processor does not count.
DspCounts ReadCounts();
// Writes an operation's counts to the host's desk. A device writes nothing there: the line would
// stay in the DSP's cache, to be written back over the host's next list.
void ShowCounts(DspCounts& shown, const DspCounts& before);

}  // namespace runnel::hexagon
