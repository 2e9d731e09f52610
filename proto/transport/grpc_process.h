#pragma once

namespace runnel {

// Keeps gRPC, and the threads of its callbacks, from the first call to the end of the process.
// gRPC 1.51 ends them with the last channel or server that uses them, and both of its ways to do so
// can go wrong: the library waits up to 10 s for a poller that a blocked write left behind, and the
// queue of the callbacks is released once too often if a stream ends at that moment (it aborts).
void KeepGrpcForTheProcess();

}  // namespace runnel
