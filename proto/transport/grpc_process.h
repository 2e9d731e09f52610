#pragma once

namespace runnel {

// Keeps gRPC, and the threads of its callbacks, from the first call to the end of the process.
// gRPC 1.51 ends them with the last channel or server that uses them, and both of its ways to do so
// can go wrong: the library waits up to 10 s for a poller that a blocked write left behind, and the
// queue of the callbacks is released once too often if a stream ends at that moment (it aborts).
//
// Also has gRPC ask the kernel to wake it when a whole message has come in, not with every packet
// (two of its experiments), unless GRPC_EXPERIMENTS is set: at 100 Mbps a packet comes every 0.12
// ms and takes the processor from the computation. So the first call of a process must come before
// anything else of gRPC, and before other threads read the environment.
void KeepGrpcForTheProcess();

}  // namespace runnel
