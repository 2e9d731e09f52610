#pragma once

// Differences between the emulator and a device. emulator_main.cc and device_main.cc implement
// them.

#include "kernels/backends/hexagon/op_list.h"

namespace runnel::hexagon {

// The memory that the host shares, and the program's own; null: refused.
uint8_t* MapShared(const DspRequest& open);
uint8_t* MapPrivate(const DspRequest& open, uint8_t* shared);
// The tightly coupled memory is taken for each list and given back after it, so that other programs
// on the DSP get it between lists. Null: others have it; with `waits` they had it for a while.
uint8_t* AcquireVtcm(uint32_t bytes, bool waits);
void ReleaseVtcm(uint8_t* vtcm);
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
