#pragma once

#include "proto/base/refusal_log.h"

namespace runnel {

// Keeps gRPC, and the threads of its callbacks, from the first call to the end of the process.
// gRPC 1.51 ends them with the last channel or server that uses them, and both of its ways to do so
// can go wrong: the library waits up to 10 s for a poller that a blocked write left behind, and the
// queue of the callbacks is released once too often if a stream ends at that moment (it aborts).
//
// Also, unless the environment has GRPC_EXPERIMENTS or GRPC_POLL_STRATEGY:
// * gRPC asks the kernel to wake it when a whole message has come in, not with every packet (two of
//   its experiments): at 100 Mbps a packet comes every 0.12 ms and takes the processor from the
//   computation.
// * Each queue waits for its own sockets with poll(). With epoll gRPC has one thread of the process
//   wait for all sockets, and whoever has taken an event wakes another thread to wait for the next:
//   data would go on waking the threads of the callbacks, which only the control streams need, and
//   these the thread of the data's queue.
// So the first call of a process must come before anything else of gRPC, and before other threads
// read the environment.
void KeepGrpcForTheProcess();

// Errors that gRPC would print itself (of connections that failed a handshake, mostly) go here from
// now on, the same one once a minute. `refusals` lives to the end of the process. Before the first
// call of gRPC.
void LogGrpcTo(RefusalLog* refusals);

}  // namespace runnel
