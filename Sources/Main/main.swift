import RxdProgram

runRxd()
