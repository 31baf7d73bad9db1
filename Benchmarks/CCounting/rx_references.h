#ifndef RX_REFERENCES_H
#define RX_REFERENCES_H

/// Retains and releases of the calling thread since it began.
extern __thread unsigned long rx_references;

#endif
