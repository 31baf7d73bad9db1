print("rxd")
