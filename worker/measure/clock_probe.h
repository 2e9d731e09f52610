#pragma once

// Measures the processor's present speed. Shared and warm machines change their clock by several
// per cent within seconds; comparisons of times of different minutes divide that out.

namespace runnel {

// Nanoseconds of the calling thread's processor time for one step of a chain of integer operations
// that each wait for the one before: a fixed number of cycles, whatever caches and memory do. About
// 0.4 ms of work. Time in which others had the processor does not count. Any thread.
double MeasureClockStepNs();

}  // namespace runnel
