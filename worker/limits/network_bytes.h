#pragma once

// Bytes that this process sends and receives over networks, as the kernel counts them for its TCP
// connections. What it does between two calls on a connection that has ended meanwhile is not counted.

#include <sys/types.h>

#include <cstdint>
#include <map>

namespace runnel {

// One thread.
class NetworkBytes {
 public:
  // counts_loopback: in tests.
  explicit NetworkBytes(bool counts_loopback = false) : counts_loopback_(counts_loopback) {}

  // Since the last call, or since the connections began. 0 where the kernel does not tell.
  int64_t Take();

 private:
  const bool counts_loopback_;
  std::map<ino_t, int64_t> sockets_;  // by inode: bytes so far
};

}  // namespace runnel
