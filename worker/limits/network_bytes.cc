#include "worker/limits/network_bytes.h"

#include <dirent.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <utility>

namespace runnel {
namespace {

bool IsLoopback(const sockaddr_storage& address) {
  if (address.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
    return (ntohl(v4.sin_addr.s_addr) >> 24) == 127;
  }
  const in6_addr& v6 = reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
  return IN6_IS_ADDR_LOOPBACK(&v6) || (IN6_IS_ADDR_V4MAPPED(&v6) && v6.s6_addr[12] == 127);
}

// Of a connected TCP socket; below 0: it is none, or one of loopback that does not count.
int64_t BytesOf(int fd, bool counts_loopback) {
  sockaddr_storage peer = {};
  socklen_t size = sizeof(peer);
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) != 0 ||
      (peer.ss_family != AF_INET && peer.ss_family != AF_INET6) ||
      (!counts_loopback && IsLoopback(peer))) {
    return -1;
  }
  tcp_info info = {};
  size = sizeof(info);
  constexpr size_t kNeeded =
      offsetof(tcp_info, tcpi_bytes_received) + sizeof(info.tcpi_bytes_received);
  if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0 || size < kNeeded) return -1;
  return static_cast<int64_t>(info.tcpi_bytes_acked + info.tcpi_bytes_received);
}

}  // namespace

int64_t NetworkBytes::Take() {
  int64_t bytes = 0;
  std::map<ino_t, int64_t> open;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir("/proc/self/fd"), closedir);
  if (folder == nullptr) return 0;
  while (const dirent* entry = readdir(folder.get())) {
    char* end = nullptr;
    const int fd = static_cast<int>(std::strtol(entry->d_name, &end, 10));
    struct stat status = {};
    if (*end != '\0' || end == entry->d_name || fstat(fd, &status) != 0 ||
        !S_ISSOCK(status.st_mode))
      continue;
    const int64_t now = BytesOf(fd, counts_loopback_);
    if (now < 0) continue;
    const auto before = sockets_.find(status.st_ino);
    bytes += std::max<int64_t>(0, now - (before == sockets_.end() ? 0 : before->second));
    open[status.st_ino] = now;
  }
  sockets_ = std::move(open);
  return bytes;
}

}  // namespace runnel
