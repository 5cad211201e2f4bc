#include "embeddings/dynamic/side_stream.h"

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace seqfuse::embeddings {

c10::Stream SideStream::current() const {
  return c10::impl::VirtualGuardImpl(device_.type()).getStream(device_);
}

SideStream::~SideStream() {
  try {
    join();
  } catch (...) {  // the process ends, and the GPU's context is gone
  }
}

void SideStream::join() {
  is_marked_ = false;
  if (!is_running_) return;
  is_running_ = false;
  done_->block(current());
}

void SideStream::mark() {
  if (device_.is_cpu()) return;
  if (!marked_) marked_.emplace(device_.type());
  marked_->record(current());
  is_marked_ = true;
}

void SideStream::run(const std::function<void()>& work) {
  if (device_.is_cpu()) return work();
  if (!is_marked_) mark();
  if (!stream_) {
    stream_ = c10::impl::VirtualGuardImpl(device_.type()).getStreamFromGlobalPool(device_);
    done_.emplace(device_.type());
  }
  marked_->block(*stream_);
  const c10::StreamGuard guard(*stream_);
  const auto finish = [&] {
    done_->record(*stream_);
    is_running_ = true;
  };
  try {
    work();
  } catch (...) {
    finish();  // part of it may be enqueued
    throw;
  }
  finish();
}

void SideStream::keep(const at::Tensor& tensor) const {
  if (tensor.is_cuda()) tensor.record_stream(current());
}

}  // namespace seqfuse::embeddings
