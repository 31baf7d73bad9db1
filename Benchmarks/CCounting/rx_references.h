#ifndef RX_REFERENCES_H
#define RX_REFERENCES_H

/// The number of retains and releases of the calling thread since it started.
extern __thread unsigned long rx_references;

#endif
