#pragma once

namespace runnel {

// Makes the C library give memory back: large blocks (a state tensor, a message) are mapped one by
// one and unmapped when they are freed, and all threads share two heaps. By default a freed block
// raises the size from which blocks are mapped, up to 32 MiB, and each thread keeps a heap of its
// own, so a worker holds twice what it uses. Once, before other threads start. Nothing happens
// where the C library has no such settings.
void LimitHeaps();

// Gives back what lies free at the ends of the heaps: after something large, such as a measurement.
// Any thread.
void TrimHeaps();

}  // namespace runnel
