#pragma once

// Answers the host's requests, wherever they come from. One thread at a time.

#include "kernels/backends/hexagon/dsp/machine.h"

namespace runnel::hexagon {

class Server {
 public:
  DspReply Answer(const DspRequest& request);
  // Gives the session's memory back; another session may open.
  void Close();
  // Null before a session is open.
  DspDesk* desk() const { return reinterpret_cast<DspDesk*>(machine_.shared); }

 private:
  DspStatus Open(const DspRequest& request);
  DspStatus Run(const DspRequest& request, uint32_t& failed);
  // For a list or the rest of one. False: others leave too little.
  bool TakeVtcm();

  Machine machine_;
  uint8_t* packed_ = nullptr;
  uint32_t packed_bytes_ = 0;
  uint32_t vtcm_bytes_ = 0;  // of the DSP
  uint32_t threads_ = 1;
};

}  // namespace runnel::hexagon
