// Copies into VTCM on cores without an engine for it: memory is fetched into the L2 cache beside the
// kernels, and copied from there when the bytes are needed.

#include "kernels/backends/hexagon/dsp/hvx.h"
#include "kernels/backends/hexagon/dsp/machine.h"

namespace runnel::hexagon {
namespace {

struct Begun {
  void* vtcm = nullptr;
  const void* from = nullptr;
  uint32_t bytes = 0;
};
Begun begun;

}  // namespace

void BeginCopy(void* vtcm, const void* from, uint32_t bytes) {
  begun = {vtcm, from, bytes};
  FetchAhead(from, bytes);
}

void AwaitCopy() {
  memcpy(begun.vtcm, begun.from, begun.bytes);
  begun.bytes = 0;
}

}  // namespace runnel::hexagon
