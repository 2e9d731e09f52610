#pragma once

namespace runnel {

// Lets this process open as many files and connections as the system allows it to ask for. A
// listener of gRPC 1.51 that once cannot open a connection for lack of room accepts no more.
void RaiseFileLimit();

}  // namespace runnel
